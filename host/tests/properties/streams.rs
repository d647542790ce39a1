//! Programs of several streams: whatever is enqueued where, and dropped when, results are those of one after the other.

use super::common::add_bias;
use super::{config, on_fake};
use proptest::prelude::*;
use std::collections::HashMap;
use std::ops::Range;
use tilewright_fake_cuda::{Fake, Sandbox, in_child};
use tilewright_host::{
    Device, Event, Graph, Launch, Pinned, Result, Stream, Tensor, TensorView, TensorViewMut, Transfer,
};

const ROWS: usize = 4;
const COLS: usize = 9;
const TENSORS: usize = 3;
const STREAMS: usize = 3;
const GRAPHS: usize = 2;

type Part = (Range<usize>, Range<usize>);

/// What a piece of work does to the model: target, its part, and where its values come from.
#[derive(Clone)]
enum Effect {
    Fill(u64, Part, f32),
    /// Of another tensor's part of the same extents, plus a number.
    From(u64, Part, u64, Part, f32),
}

/// The contents of all tensors that anybody may still see.
type Contents = HashMap<u64, Vec<f32>>;

fn places((rows, cols): &Part) -> Vec<usize> {
    rows.clone().flat_map(|r| cols.clone().map(move |c| r * COLS + c)).collect()
}

fn apply(contents: &mut Contents, effect: &Effect) {
    let (target, part, values) = match effect {
        Effect::Fill(t, part, v) => (t, part, vec![*v; places(part).len()]),
        Effect::From(t, part, source, from, bias) => {
            let source = &contents[source];
            (t, part, places(from).iter().map(|&p| source[p] + bias).collect())
        }
    };
    let target = contents.get_mut(target).unwrap();
    for (p, v) in places(part).into_iter().zip(values) {
        target[p] = v;
    }
}

/// Two parts of the same extents.
fn parts(a: u8, b: u8) -> (Part, Part) {
    let (rows, cols) = (1 + a as usize % ROWS, 1 + b as usize % COLS);
    let place = |by: usize| {
        let (r, c) = ((a as usize / 4 + by) % (ROWS - rows + 1), (b as usize / 9 + by) % (COLS - cols + 1));
        (r..r + rows, c..c + cols)
    };
    (place(0), place(1))
}

fn part<'a>(t: &'a Tensor<f32, 2>, (rows, cols): &Part) -> Result<TensorView<'a, f32, 2>> {
    t.view().rows(rows.clone())?.cols(cols.clone())
}

fn part_mut<'a>(t: &'a mut Tensor<f32, 2>, (rows, cols): &Part) -> Result<TensorViewMut<'a, f32, 2>> {
    t.view_mut().rows(rows.clone())?.cols(cols.clone())
}

struct Run {
    device: Device,
    streams: Vec<Stream>,
    tensors: Vec<(u64, Tensor<f32, 2>)>,
    graphs: Vec<(Graph, Vec<Effect>)>,
    events: Vec<Event>,
    /// Copies under way, and what their buffers hold in the end.
    transfers: Vec<(Transfer<f32>, Vec<f32>)>,
    contents: Contents,
    next: u64,
}

impl Run {
    fn new(device: Device) -> Result<Run> {
        let streams = (0..STREAMS).map(|_| device.new_stream()).collect::<Result<Vec<_>>>()?;
        let (tensors, graphs, events, transfers) = Default::default();
        let mut run = Run { device, streams, tensors, graphs, events, transfers, contents: HashMap::new(), next: 0 };
        for i in 0..TENSORS {
            let new = run.tensor(i)?;
            run.tensors.push(new);
        }
        Ok(run)
    }

    fn tensor(&mut self, on: usize) -> Result<(u64, Tensor<f32, 2>)> {
        self.next += 1;
        let value = self.next as f32;
        self.contents.insert(self.next, vec![value; ROWS * COLS]);
        Ok((self.next, Tensor::full(&self.streams[on % STREAMS], [ROWS, COLS], value)?))
    }

    /// Gives one piece of work to a stream. What it does.
    fn work(tensors: &mut [(u64, Tensor<f32, 2>)], s: &Stream, [what, which, a, b]: [u8; 4]) -> Result<Effect> {
        let (x, y) = (which as usize % TENSORS, which as usize / TENSORS % TENSORS);
        let (from, to) = parts(a, b);
        let value = f32::from(a) + 0.5;
        if x == y || what % 4 == 0 {
            let (id, y) = &mut tensors[y];
            part_mut(y, &to)?.fill(s, value)?;
            return Ok(Effect::Fill(*id, to, value));
        }
        let [(source, x), (target, y)] = tensors.get_disjoint_mut([x, y]).unwrap();
        let (input, mut output) = (part(x, &from)?, part_mut(y, &to)?);
        if what % 4 == 1 {
            output.copy_from(s, input)?;
            return Ok(Effect::From(*target, to, *source, from, 0.0));
        }
        add_bias::launch(s, (input.tiles()?, output.tiles_mut()?, value))?;
        Ok(Effect::From(*target, to, *source, from, value))
    }

    fn step(&mut self, fake: Option<&Fake>, step: [u8; 4]) -> Result<()> {
        let [what, which, a, b] = step;
        let on = self.streams[a as usize % STREAMS].clone();
        let t = which as usize % TENSORS;
        match what % 20 {
            0..=5 => {
                let effect = Run::work(&mut self.tensors, &on, step)?;
                apply(&mut self.contents, &effect);
            }
            6 => {
                let (_, p) = parts(a, b);
                let (id, tensor) = &self.tensors[t];
                let wanted: Vec<f32> = places(&p).iter().map(|&i| self.contents[id][i]).collect();
                assert_eq!(part(tensor, &p)?.to_vec(&on)?, wanted);
            }
            7 => {
                let (_, p) = parts(a, b);
                let (id, tensor) = &mut self.tensors[t];
                part_mut(tensor, &p)?.copy_from_slice(&on, &vec![f32::from(b); places(&p).len()])?;
                apply(&mut self.contents, &Effect::Fill(*id, p, f32::from(b)));
            }
            8 | 9 => {
                let new = self.tensor(a as usize)?;
                self.tensors[t] = new; // drops the old one, whatever still uses it
            }
            10 => self.streams[a as usize % STREAMS] = self.device.new_stream()?,
            11 => {
                let mut effects = Vec::new();
                let tensors = &mut self.tensors;
                let graph = on.capture(|s| {
                    for i in 0..1 + b % 3 {
                        effects.push(Run::work(
                            tensors,
                            s,
                            [which ^ i, a.wrapping_add(i), b.wrapping_mul(3 + i), which],
                        )?);
                    }
                    Ok(())
                })?;
                if self.graphs.len() == GRAPHS {
                    self.graphs.remove(usize::from(b) % GRAPHS);
                }
                self.graphs.push((graph, effects));
            }
            12 | 13 if !self.graphs.is_empty() => {
                let n = self.graphs.len();
                let (graph, effects) = &mut self.graphs[which as usize % n];
                graph.launch(&on)?;
                effects.iter().for_each(|e| apply(&mut self.contents, e));
            }
            14 => {
                let event = Event::record(&on)?;
                self.streams[b as usize % STREAMS].wait(&event)?;
                self.events.truncate(2);
                self.events.push(event);
            }
            15 | 16 => {
                let (_, p) = parts(a, b);
                let values: Vec<f32> = (0..places(&p).len()).map(|i| f32::from(which) + i as f32).collect();
                let (id, tensor) = &mut self.tensors[t];
                let up = part_mut(tensor, &p)?.upload(&on, Pinned::from_slice(&self.device, &values)?)?;
                for (p, v) in places(&p).into_iter().zip(&values) {
                    self.contents.get_mut(id).unwrap()[p] = *v;
                }
                self.transfers.push((up, values));
            }
            17 => {
                let (_, p) = parts(a, b);
                let (id, tensor) = &self.tensors[t];
                let wanted: Vec<f32> = places(&p).iter().map(|&i| self.contents[id][i]).collect();
                let buffer = Pinned::zeros(&self.device, wanted.len())?;
                self.transfers.push((part(tensor, &p)?.download(&on, buffer)?, wanted));
            }
            18 if !self.transfers.is_empty() => {
                let (transfer, wanted) = self.transfers.swap_remove(usize::from(which) % self.transfers.len());
                if b % 3 > 0 {
                    assert_eq!(transfer.wait()?[..], wanted);
                }
            }
            _ => match (b % 4, fake) {
                (0, _) => on.synchronize()?,
                (1, Some(fake)) => fake.run(),
                (2, Some(fake)) => fake.seed(u64::from(which)),
                (3, _) => Event::record(&on)?.synchronize()?,
                _ => {}
            },
        }
        Ok(())
    }

    fn end(self, order: u8) -> Result<()> {
        let Run { streams, tensors, graphs, events, contents, mut transfers, .. } = self;
        if let Some((transfer, wanted)) = transfers.pop() {
            assert_eq!(transfer.wait()?[..], wanted);
        }
        for (id, t) in &tensors {
            assert_eq!(t.to_vec(&streams[order as usize % STREAMS])?, contents[id]);
        }
        match order % 4 {
            0 => drop((streams, tensors, graphs, events, transfers)),
            1 => drop((transfers, graphs, tensors, events, streams)),
            2 => drop((tensors, events, transfers, streams, graphs)),
            _ => drop((events, graphs, streams, transfers, tensors)),
        }
        Ok(())
    }
}

fn programs() -> impl Strategy<Value = (Vec<[u8; 4]>, u8)> {
    (prop::collection::vec(any::<[u8; 4]>(), 0..60), any::<u8>())
}

fn on_the_fake(pools: bool) {
    let fake = Fake::connect();
    on_fake::install(&fake);
    let device = Device::cuda(0).unwrap();
    add_bias::prepare(&device).unwrap();
    let before = fake.live();
    assert_eq!(fake.calls("cuMemAllocAsync"), 0);
    proptest!(config(300), |((steps, order) in programs())| {
        fake.seed(0);
        let mut run = Run::new(device).unwrap();
        for step in steps {
            run.step(Some(&fake), step).unwrap();
        }
        run.end(order).unwrap();
        prop_assert_eq!(fake.violations(), Vec::<String>::new());
        prop_assert_eq!(fake.live(), before);
    });
    assert_eq!(fake.calls("cuMemAllocAsync") > 0, pools);
    assert!(fake.calls("cuGraphLaunch") > 100 && fake.calls("cuStreamWaitEvent") > 100);
    assert!(fake.calls("cuMemHostAlloc") > 100 && fake.calls("cuMemFreeHost") == fake.calls("cuMemHostAlloc"));
}

#[test]
fn programs_on_a_driver() {
    if in_child() {
        on_the_fake(true);
    } else {
        Sandbox::new().run("streams::programs_on_a_driver");
    }
}

#[test]
fn programs_on_a_driver_without_pools() {
    if in_child() {
        on_the_fake(false);
    } else {
        Sandbox::new().set("POOLS", 0).run("streams::programs_on_a_driver_without_pools");
    }
}

#[test]
fn programs_on_the_cpu() {
    let device = Device::cpu();
    proptest!(config(300), |((steps, order) in programs())| {
        let mut run = Run::new(device).unwrap();
        for step in steps {
            run.step(None, step).unwrap();
        }
        run.end(order).unwrap();
    });
}
