// wrong: a kernel made without `#[kernel]`
// rule: soundness 1, 17
// expect: check E0200 "requires an `unsafe impl` declaration"
#![forbid(unsafe_code)]
use tilewright::prelude::*;

pub struct Mine;
impl tilewright::kernel::Kernel for Mine { //~ right:
    type Args<'a> = (u32,); //~ right:
    const NAME: &'static str = ""; //~ right:
    const SYMBOL: &'static str = ""; //~ right:
    const ARG_NAMES: &'static [&'static str] = &[]; //~ right:
    const ARCH: &'static str = "sm_80"; //~ right:
    const THREADS: u32 = 1; //~ right:
    const CLUSTER: u32 = 1; //~ right:
    const MIN_BLOCKS: u32 = 1; //~ right:
    const SHARED_BYTES: u32 = 0; //~ right:
    const GRID: tilewright::kernel::Grid = tilewright::kernel::Grid::PerTile; //~ right:
    const SIGNATURE: u64 = 0; //~ right:
    fn images() -> &'static [tilewright::__private::Image] { &[] } //~ right:
    fn block(_: &tilewright::__private::backend::Block, _: (u32,)) {} //~ right:
} //~ right:
