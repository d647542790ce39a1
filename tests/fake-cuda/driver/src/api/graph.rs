//! Recording and replaying.
#![allow(unsafe_op_in_unsafe_fn)] // every function here is given pointers by the caller's contract

use super::{api, put};
use crate::queue::Point;
use crate::world::{Code, Exec, Graph, INVALID_HANDLE, INVALID_VALUE, World};
use std::ffi::c_void;

/// What a node launches, as the driver's first version of the structure has it.
#[repr(C)]
pub struct KernelNode {
    function: *mut c_void,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
}

/// Nodes are named by the stream that recorded them and their number.
const NODES: u64 = 1 << 56;

fn node_handle(graph: u64, index: usize) -> *mut c_void {
    (NODES | (index as u64) << 44 | (graph & 0xFFF_FFFF_FFFF)) as *mut c_void
}

fn node(handle: *mut c_void) -> (u64, usize) {
    let h = handle as u64;
    (h & 0xFFF_FFFF_FFFF, (h >> 44 & 0xFFF) as usize)
}

impl World {
    fn exec(&mut self, exec: *mut c_void) -> Result<&mut Exec, Code> {
        let Some(device) = self.execs.get(&(exec as u64)).map(|e| e.device) else {
            self.violation("a graph that is none, or was destroyed");
            return Err(INVALID_HANDLE);
        };
        self.belongs("a graph", device)?;
        self.execs.get_mut(&(exec as u64)).ok_or(INVALID_HANDLE)
    }
}

api! {
    fn cuStreamBeginCapture_v2(stream: *mut c_void, _mode: i32) |w| {
        let key = w.stream(stream as u64)?;
        let Some(s) = w.streams.get_mut(&key) else { return Err(INVALID_HANDLE) };
        if s.capture.is_some() || stream.is_null() {
            return Err(INVALID_VALUE);
        }
        s.capture = Some(Ok(Vec::new()));
        Ok(())
    }
    fn cuStreamIsCapturing(stream: *mut c_void, status: *mut i32) |w| {
        let key = w.stream(stream as u64)?;
        let state = w.streams.get(&key).and_then(|s| s.capture.as_ref());
        put(status, match state { None => 0, Some(Ok(_)) => 1, Some(Err(_)) => 2 })
    }
    // The nodes that the next one will depend on: here always the last.
    fn cuStreamGetCaptureInfo_v2(
        stream: *mut c_void, status: *mut i32, id: *mut u64, graph: *mut *mut c_void, nodes: *mut *const *mut c_void, n: *mut usize,
    ) |w| {
        let key = w.stream(stream as u64)?;
        let Some(Some(Ok(recorded))) = w.streams.get(&key).map(|s| s.capture.as_ref()) else { return put(status, 0) };
        let count = recorded.len();
        put(status, 1)?;
        if !id.is_null() {
            put(id, key)?;
        }
        if !graph.is_null() {
            put(graph, std::ptr::null_mut())?;
        }
        if !nodes.is_null() && count > 0 {
            // Lives until the process ends: the driver's own lives until the next call on the stream.
            let last = Box::leak(Box::new([node_handle(key, count - 1)]));
            put(nodes, last.as_ptr())?;
        }
        if n.is_null() { Ok(()) } else { put(n, count.min(1)) }
    }
    fn cuStreamEndCapture(stream: *mut c_void, graph: *mut *mut c_void) |w| {
        let key = w.stream(stream as u64)?;
        let Some(s) = w.streams.get_mut(&key) else { return Err(INVALID_HANDLE) };
        let device = s.device;
        match s.capture.take() {
            None => Err(INVALID_VALUE),
            Some(Err(_)) => {
                put(graph, std::ptr::null_mut())?;
                Err(crate::world::STREAM_CAPTURE_INVALIDATED)
            }
            Some(Ok(nodes)) => {
                let handle = w.handle();
                w.graphs.insert(handle, Graph { nodes, device, recorded_on: key });
                put(graph, handle as *mut c_void)
            }
        }
    }
    fn cuGraphInstantiateWithFlags(exec: *mut *mut c_void, graph: *mut c_void, _flags: u64) |w| {
        w.current()?;
        let Some(g) = w.graphs.get(&(graph as u64)) else {
            w.violation("a recorded graph that is none, or was destroyed");
            return Err(INVALID_HANDLE);
        };
        let new = Exec { nodes: g.nodes.clone(), device: g.device, recorded_on: g.recorded_on, graph: graph as u64, launched: Vec::new() };
        let handle = w.handle();
        w.execs.insert(handle, new);
        put(exec, handle as *mut c_void)
    }
    fn cuGraphDestroy(graph: *mut c_void) |w| {
        if w.graphs.remove(&(graph as u64)).is_none() {
            w.violation("a recorded graph is destroyed twice");
            return Err(INVALID_HANDLE);
        }
        Ok(())
    }
    fn cuGraphLaunch(exec: *mut c_void, stream: *mut c_void) |w| {
        let key = w.stream(stream as u64)?;
        w.not_recording(key)?;
        let nodes = w.exec(exec)?.nodes.clone();
        for op in nodes {
            w.enqueue(key, op)?;
        }
        let number = w.streams.get(&key).map_or(0, |s| s.given);
        w.exec(exec)?.launched.push(Point { stream: key, number });
        Ok(())
    }
    fn cuGraphExecDestroy(exec: *mut c_void) |w| {
        let launched = std::mem::take(&mut w.exec(exec)?.launched);
        if launched.iter().any(|&p| !w.is_done(p)) {
            w.violation("a graph is destroyed while it runs");
        }
        w.execs.remove(&(exec as u64));
        Ok(())
    }
    fn cuGraphExecKernelNodeSetParams(exec: *mut c_void, which: *mut c_void, params: *const KernelNode) |w| {
        let (graph, index) = node(which);
        let e = w.exec(exec)?;
        let (count, own, source) = (e.nodes.len(), e.recorded_on & 0xFFF_FFFF_FFFF, e.graph);
        if !w.graphs.contains_key(&source) {
            return Err(INVALID_VALUE); // nodes are those of the graph that was recorded, and go with it
        }
        if graph != own || index >= count {
            w.violation("a node of another graph");
            return Err(INVALID_VALUE);
        }
        let p = &*params;
        let op = w.launch(p.function, p.grid, p.block, p.shared, p.params)?;
        w.exec(exec)?.nodes[index] = op;
        Ok(())
    }
}
