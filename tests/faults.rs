//! Faults that kernels find in their data come back as errors, and nothing else is lost.

use tilewright::prelude::*;

tilewright::images!(none);

/// Row `i` of `y` is row `rows[i]` of `x`; where there is none it is row 0, and the launch says so.
#[kernel(faults(BAD_ROW = "the list names a row that does not exist", ODD_ROW = "the list names an odd row"))]
fn gather(mut cta: Cta<128>, x: Tiles<f32, 1, 512>, rows: Tiles<u32, 1, 1>, count: u32, y: TilesMut<f32, 1, 512>) {
    for ((i, j), y) in y {
        let row = rows.tile(i, 0).scalar(&mut cta);
        cta.fault_if(row >= count, BAD_ROW);
        cta.fault_if(row < count && row % 2 == 1, ODD_ROW);
        let x = cta.load(x.tile(if row < count { row } else { 0 }, j));
        y.store(&mut cta, &x);
    }
}

const ROWS: usize = 64;

fn run(list: &[u32]) -> (Result<(), Error>, Vec<f32>) {
    let stream = Device::cpu().stream().unwrap();
    let data: Vec<f32> = (0..ROWS * 512).map(|i| (i / 512) as f32).collect();
    let x = Tensor::<f32, 2>::from_slice(&stream, [ROWS, 512], &data).unwrap();
    let rows = Tensor::<u32, 2>::from_slice(&stream, [list.len(), 1], list).unwrap();
    let mut y = Tensor::<f32, 2>::zeros(&stream, [list.len(), 512]).unwrap();
    let args =
        (x.view().tiles().unwrap(), rows.view().tiles().unwrap(), ROWS as u32, y.view_mut().tiles_mut().unwrap());
    let result = gather::launch(&stream, args).and_then(|()| stream.synchronize());
    let y = y.to_vec(&stream).unwrap();
    (result, y.chunks(512).map(|row| row[0]).collect())
}

#[test]
fn data_without_faults_reports_none() {
    let (result, y) = run(&[4, 2, 62, 0]);
    assert_eq!(result, Ok(()));
    assert_eq!(y, [4.0, 2.0, 62.0, 0.0]);
}

#[test]
fn a_fault_names_the_kernel_and_the_rest_is_done() {
    let (result, y) = run(&[4, 2_147_480_000, 62]);
    match result {
        Err(Error::Kernel { name, message, .. }) => {
            assert_eq!(message, "the list names a row that does not exist");
            assert!(name.ends_with("::gather"), "{name}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(y, [4.0, 0.0, 62.0], "the other rows are right, and row 0 stands for the bad one");
}

#[test]
fn each_fault_has_its_own_message() {
    let (result, y) = run(&[3]);
    let said = result.unwrap_err().to_string();
    assert!(said.ends_with("failed in block 0: the list names an odd row"), "{said}");
    assert_eq!(y, [3.0]);
}
