use tilewright::prelude::*;

tilewright::images!(none);

/// y = x * sigmoid(x) * g
#[kernel(instances(bf16 = <bf16>, f32 = <f32>))]
pub fn gate<T: Element<Value = f32>>(mut cta: Cta<256>, x: Tiles<T, 1, 2048>, g: Tiles<T, 1, 2048>, y: TilesMut<T, 1, 2048>) {
    for ((i, j), out) in y {
        let x = cta.load(x.tile(i, j));
        let g = cta.load(g.tile(i, j));
        out.store(&mut cta, &x.zip(&g, |x, g| x * reciprocal(1.0 + exp2(-1.442695 * x)) * g));
    }
}

fn main() -> Result<(), Error> {
    let stream = Device::best().stream()?; // a GPU if there is one, else the CPU
    let x = Tensor::<f32, 2>::full(&stream, [1000, 777], 1.5)?;
    let g = Tensor::<f32, 2>::full(&stream, [1000, 777], 2.0)?;
    let mut y = Tensor::<f32, 2>::zeros(&stream, [1000, 777])?;
    gate::<f32>::launch(&stream, (x.tiles()?, g.tiles()?, y.tiles_mut()?))?;
    println!("{}", y.to_vec(&stream)?[0]);
    Ok(())
}
