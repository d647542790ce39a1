mod kernels;

use kernels::scale;
use tilewright::prelude::*;

tilewright::images!();

fn main() -> Result<(), Error> {
    let device = match scale::prepare(&Device::best()) {
        Ok(()) => Device::best(),
        Err(e) => {
            println!("{e}");
            Device::cpu()
        }
    };
    let stream = device.stream()?;
    let data: Vec<f32> = (1..=3000).map(|i| i as f32).collect();

    let x = Tensor::<f32, 2>::from_slice(&stream, [3, 1000], &data)?;
    let mut y = Tensor::<f32, 2>::zeros(&stream, [3, 1000])?;
    scale::launch(&stream, (x.tiles()?, y.tiles_mut()?))?;

    let y = y.to_vec(&stream)?;
    println!("on {device}: each row ends in 1, as in {:?}", &y[1997..2000]);
    assert_eq!([y[999], y[1999], y[2999]], [1.0; 3]);
    Ok(())
}
