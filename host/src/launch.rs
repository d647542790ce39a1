//! Launching kernels.

use crate::device::Device;
use crate::driver::{self, Function, check, sys};
use crate::error::{Error, Result, UNNAMED};
use crate::recording::{InGraph, Recording};
use crate::storage::Storage;
use crate::stream::Stream;
use std::ffi::c_void;
use tilewright_core::backend;
use tilewright_core::kernel::{Args, Grid, Kernel};

/// More parameters than the longest tuple of arguments has.
const MAX_PARAMS: usize = 32;
/// Blocks of a grid at most, by the hardware's limit on its first dimension.
const MAX_BLOCKS: u64 = i32::MAX as u64;

/// What every kernel can do.
///
/// A launch enqueues the kernel and returns; on the CPU it is done when the call returns. It allocates nothing and waits
/// for nothing. The arguments are borrowed during the call alone: tensors order what comes after it, and are not freed
/// before it is done.
///
/// ```no_run
/// # use tilewright_host::{Device, Launch, Result, Tensor};
/// # use tilewright_core::kernel::Kernel;
/// # use tilewright_core::view::{Tiles, TilesMut};
/// # fn f<double: for<'a> Kernel<Args<'a> = (Tiles<'a, f32, 1, 256>, TilesMut<'a, f32, 1, 256>)>>() -> Result<()> {
/// let stream = Device::best().stream()?;
/// let x = Tensor::<f32, 1>::full(&stream, [1000], 1.5)?;
/// let mut y = Tensor::<f32, 1>::zeros(&stream, [1000])?;
/// double::launch(&stream, (x.tiles()?, y.tiles_mut()?))?;
/// assert_eq!(y.to_vec(&stream)?, [3.0; 1000]);
/// # Ok(()) }
/// ```
pub trait Launch: Kernel {
    /// Enqueues the kernel. The blocks follow from the first output's tiles; if it has none, nothing is launched.
    ///
    /// # Errors
    /// [`Error::Device`] for an argument of another device; what [`prepare`](Self::prepare) says, at first use;
    /// [`Error::Shape`] for more tiles than a grid has blocks, if the kernel takes one tile a block;
    /// [`Error::NotLoaded`] for a first use during a capture; [`Error::Kernel`] if the kernel fails on the CPU;
    /// [`Error::Driver`].
    fn launch(stream: &Stream, args: Self::Args<'_>) -> Result<()> {
        let tiles = check_args::<Self>(stream.device(), &args)?;
        if Self::GRID == Grid::OneTile && tiles > MAX_BLOCKS / u64::from(Self::CLUSTER.max(1)) {
            let expected = format!("at most {MAX_BLOCKS} blocks, one for each tile");
            return Err(Error::Shape { arg: UNNAMED, expected, found: format!("{tiles} tiles") });
        }
        match stream.cuda() {
            None => on_cpu::<Self>(stream, args, tiles),
            Some(_) => enqueue::<Self>(stream, args, tiles),
        }
    }

    /// As [`launch`](Self::launch), on GPUs alone: a program that calls nothing else does not carry the kernel's CPU code,
    /// which counts where a function chooses among dozens of instances.
    ///
    /// # Errors
    /// As [`launch`](Self::launch); [`Error::NoImageFor`] on the CPU.
    fn launch_on_gpu(stream: &Stream, args: Self::Args<'_>) -> Result<()> {
        let tiles = check_args::<Self>(stream.device(), &args)?;
        if stream.cuda().is_none() {
            let device = stream.device().to_string();
            let (kernel, need, found) = (Self::NAME, Self::ARCH, "the CPU".to_string());
            return Err(Error::NoImageFor { kernel, need, device, found, have: vec![Self::ARCH] });
        }
        enqueue::<Self>(stream, args, tiles)
    }

    /// Loads the kernel on a device, so that the first launch does not. On the CPU there is nothing to load.
    ///
    /// # Errors
    /// [`Error::NoImageFor`], [`Error::NotBuilt`], [`Error::SignatureMismatch`], [`Error::DriverTooOld`],
    /// [`Error::Driver`].
    fn prepare(device: &Device) -> Result<()> {
        device.cuda.map_or(Ok(()), |context| context.load::<Self>().map(|_| ()))
    }
}

impl<K: Kernel> Launch for K {}

fn arg_name<K: Kernel>(index: usize) -> &'static str {
    K::ARG_NAMES.get(index).copied().unwrap_or(UNNAMED)
}

/// Checks where the arguments lie. How many tiles there are to work on: those of the first output.
fn check_args<K: Kernel>(device: Device, args: &K::Args<'_>) -> Result<u64> {
    let (mut tiles, mut elsewhere) = (None, None);
    args.facts(&mut |i, facts| {
        if let Some(p) = facts.provenance
            && p.device != device.number()
        {
            elsewhere.get_or_insert((i, p.device));
        }
        if facts.mutable && tiles.is_none() {
            tiles = facts.tiles;
        }
    });
    if let Some((i, number)) = elsewhere {
        device.expect(arg_name::<K>(i), number)?;
    }
    Ok(tiles.unwrap_or(0))
}

/// What the arguments name, and whether it is written.
fn uses<K: Kernel>(args: &K::Args<'_>, see: &mut dyn FnMut(&Storage, bool)) {
    args.facts(&mut |_, facts| {
        let owner = facts.provenance.and_then(|p| p.owner).and_then(|o| o.downcast_ref::<Storage>());
        if let Some(storage) = owner {
            see(storage, facts.mutable);
        }
    });
}

fn on_cpu<K: Kernel>(stream: &Stream, args: K::Args<'_>, tiles: u64) -> Result<()> {
    if stream.not_capturing("").is_ok() {
        return stream.on_cpu_now("launching", || run_on_cpu::<K>(stream.device(), args, tiles));
    }
    let mut used = Vec::new();
    uses::<K>(&args, &mut |storage, write| used.push((storage.clone(), write)));
    let used: Vec<_> = used.iter().map(|(s, w)| (s, *w)).collect();
    // SAFETY: the graph keeps the storages.
    stream.record(&used, || unsafe { Recording::new::<K>(stream.device(), args, tiles, None) }).map(|_| ())
}

pub(crate) fn run_on_cpu<K: Kernel>(device: Device, args: K::Args<'_>, tiles: u64) -> Result<()> {
    if tiles == 0 {
        return Ok(());
    }
    // Fewer workers than tiles is right too: each takes its share. A few a processor even out unequal tiles.
    let workers = match K::GRID {
        Grid::OneTile => tiles,
        Grid::PerTile => tiles.min(8 * u64::from(device.multiprocessors())),
        Grid::Persistent => tiles.min(device.multiprocessors().into()),
    };
    let workers = u32::try_from(workers).unwrap_or(u32::MAX);
    backend::run::<K>(args, workers).map_err(|fault| Error::Kernel {
        name: K::NAME,
        block: fault.block,
        message: fault.message,
    })
}

/// The number of blocks for so many tiles.
fn blocks(grid: Grid, cluster: u32, tiles: u64, resident: u64) -> u32 {
    let cluster = u64::from(cluster.max(1));
    let clusters = match grid {
        Grid::PerTile | Grid::OneTile => tiles,
        Grid::Persistent => tiles.min((resident / cluster).max(1)),
    };
    // Folded to what the hardware takes: blocks stride over the tiles.
    let blocks = clusters.min(MAX_BLOCKS / cluster) * cluster;
    u32::try_from(blocks).unwrap_or(u32::MAX)
}

fn enqueue<K: Kernel>(stream: &Stream, args: K::Args<'_>, tiles: u64) -> Result<()> {
    let Some((context, _)) = stream.cuda() else { return Ok(()) };
    if tiles == 0 {
        if let Some(mut turn) = stream.turn()? {
            // SAFETY: never runs.
            turn.record(|_| unsafe { Recording::new::<K>(stream.device(), args, 0, None) });
        }
        return Ok(());
    }
    let function = match context.loaded::<K>() {
        Some(f) => f,
        None => {
            stream.not_capturing("loading a kernel").map_err(|_| Error::NotLoaded { kernel: K::NAME })?;
            context.load::<K>()?
        }
    };
    let lowered = args.lower();
    let faults = function.faults.map(|f| f.address());
    let mut params = addresses::<K::Args<'_>>(&lowered, faults.as_ref());
    let Some(mut turn) = stream.turn()? else { return Ok(()) };
    let mut noted = Ok(());
    uses::<K>(&args, &mut |storage, write| {
        if noted.is_ok() {
            noted = turn.uses(storage, write);
        }
    });
    noted?;
    let grid = blocks(K::GRID, K::CLUSTER, tiles, function.resident);
    // SAFETY: the function's signature was compared with `K`'s when it was loaded; `params` are the addresses of its
    // parameters, in order, alive until the call returns. The memory that they name is of this device; the storages
    // keep it until the stream is done, and order other uses.
    let code = unsafe { launch_raw(function, grid, K::THREADS, K::SHARED_BYTES, turn.raw, &mut params) };
    check("cuLaunchKernel", code)?;
    // SAFETY: the graph keeps the storages.
    turn.record(|raw| unsafe {
        let node = driver::last_node(raw);
        Recording::new::<K>(stream.device(), args, tiles, Some(InGraph { function, grid, node }))
    });
    turn.submit();
    Ok(())
}

/// Where each parameter of a launch is: those of the arguments, and that of the faults' record, if the kernel has one.
pub(crate) fn addresses<A: Args>(lowered: &A::Lowered, faults: Option<&u64>) -> [*mut c_void; MAX_PARAMS] {
    let mut params = [std::ptr::null_mut::<c_void>(); MAX_PARAMS];
    let mut free = params.iter_mut();
    A::params(lowered, &mut |p| {
        if let Some(slot) = free.next() {
            *slot = p.cast_mut();
        }
    });
    if let (Some(address), Some(slot)) = (faults, free.next()) {
        *slot = std::ptr::from_ref(address).cast_mut().cast();
    }
    params
}

/// # Safety
/// `params` are the parameters of `function`, which may touch what they name.
unsafe fn launch_raw(
    function: &Function,
    grid: u32,
    threads: u32,
    shared: u32,
    stream: sys::CUstream,
    params: &mut [*mut c_void; MAX_PARAMS],
) -> sys::CUresult {
    // A cluster's size is in the code (`.reqnctapercluster`), so that this call launches clusters too.
    // SAFETY: the caller's.
    unsafe {
        sys::cuLaunchKernel(
            function.raw,
            grid,
            1,
            1,
            threads,
            1,
            1,
            shared,
            stream,
            params.as_mut_ptr(),
            std::ptr::null_mut(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids_are_whole_clusters_within_the_limits() {
        assert_eq!(blocks(Grid::PerTile, 1, 7, 132), 7);
        assert_eq!(blocks(Grid::PerTile, 2, 7, 132), 14);
        assert_eq!(blocks(Grid::Persistent, 1, 7, 132), 7);
        assert_eq!(blocks(Grid::Persistent, 1, 700, 132), 132);
        assert_eq!(blocks(Grid::Persistent, 2, 700, 132), 132);
        assert_eq!(blocks(Grid::Persistent, 8, 700, 132), 128);
        assert_eq!(blocks(Grid::Persistent, 8, 700, 4), 8);
        assert_eq!(blocks(Grid::PerTile, 1, u64::from(u32::MAX), 132), i32::MAX as u32);
        assert_eq!(blocks(Grid::PerTile, 4, u64::from(u32::MAX), 132) % 4, 0);
        assert!(blocks(Grid::PerTile, 4, u64::from(u32::MAX), 132) <= i32::MAX as u32);
    }
}
