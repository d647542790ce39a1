// wrong: the supplier keeps a slot beyond its role
// rule: soundness 3: slots and ends stay in their role
// expect: check E0277 "cannot be sent between threads safely"
#![forbid(unsafe_code)]
use tilewright::prelude::*;

tilewright::images!(none);

#[kernel(arch = "sm_90a", grid = persistent)]
pub fn copy(
    cta: Cta<384>,
    #[shared] left: Pipeline<SharedTile<bf16, 64, 64>, 1>,
    #[shared] right: Pipeline<SharedTile<bf16, 64, 128>, 1>,
    #[shared] to_second: Pipeline<SharedRow, 1>,
    #[shared] to_first: Pipeline<SharedRow, 1>,
    out: OwnedTiles<bf16, 64, 128>,
    kv: TmaPages<bf16, 64, 64>,
    k_rope: TmaPages<bf16, 64, 64>,
    table: Tiles<i32, 1, 1>,
) {
    let tickets = out.tickets();
    let (mut left_out, mut right_out) = out.halves::<64>();
    let mut kept = None;
    cta.pair_supplied(
        (left.to_first(), right.to_second()),
        to_second,
        to_first,
        |warp, (left, right)| {
            for ticket in tickets {
                let pages = table.list(ticket);
                let keys = kv.gather(warp, pages, 0);
                kept = Some(left.fill(warp)); //~ right: left.fill(warp).gather(warp, keys); kept = Some(());
                right.fill(warp).gather(warp, keys.beside::<_, _, 128>(&k_rope));
            }
        },
        |wg, (left, ()), _, _| {
            for ticket in tickets {
                drop(left.next());
                if let Some((out, _)) = left_out.claim_with_rows(ticket, ticket) {
                    out.store(wg, Acc::<64>::zero());
                }
            }
        },
        |wg, ((), right), _, _| {
            for ticket in tickets {
                drop(right.next());
                if let Some(out) = right_out.claim(ticket, ticket) {
                    out.store(wg, Acc::<64>::zero());
                }
            }
        },
    );
}
