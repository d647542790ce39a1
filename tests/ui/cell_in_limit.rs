// wrong: what a row sees depends on a cell, which threads would share
// rule: soundness 5: element closures carry nothing from lane to lane
// expect: check E0277 "cannot be shared between threads safely"
#![forbid(unsafe_code)]
use tilewright::prelude::*;

tilewright::images!(none);

#[kernel(arch = "sm_80", grid = persistent)]
pub fn attend(
    mut cta: Cta<128>,
    #[shared] memory: Attention<bf16>,
    out: OwnedTiles<bf16, 32, 512>,
    q: Tiles<bf16, 32, 512>,
    q_rope: Tiles<bf16, 32, 64>,
    kv: Tiles<bf16, 1, 512>,
    k_rope: Tiles<bf16, 1, 64>,
    table: Tiles<i32, 1, 1>,
) {
    let (mut memory, mut out) = (memory, out);
    let last = core::cell::Cell::new(64u32);
    for ticket in out.tickets() {
        let keys = LatentKeys::new(kv, k_rope, table.list(ticket));
        let rows = (q.tile(ticket, 0), q_rope.tile(ticket, 0));
        let attended = cta.attend(&mut memory, rows, keys, (0, 64), |row| last.replace(row), 1.0); //~ right: let attended = cta.attend(&mut memory, rows, keys, (0, 64), |_| 64, 1.0); let _ = &last;
        if let Some(to) = out.claim(&mut cta, ticket, ticket) {
            attended.store(&mut cta, to, |log| log);
        }
    }
}
