//! A real kernel with clusters, tensor maps and a persistent grid, launched through the public interface: on the CPU,
//! and on every GPU that its image runs on.

use tilewright_core::element::bf16;
use tilewright_core::schedule::Grouped;
use tilewright_host::{Device, Error, Launch, Result, Tensor};
use tilewright_kernels::gemm::hopper;

fn random(n: usize, mut seed: u64) -> Vec<bf16> {
    let mut next = || {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        bf16::from_f32((seed >> 40) as f32 / (1u64 << 23) as f32 - 1.0)
    };
    (0..n).map(|_| next()).collect()
}

fn product(device: Device, [m, n, k]: [usize; 3]) -> Result<()> {
    let stream = device.stream()?;
    let (a, b) = (random(m * k, 1), random(n * k, 2));
    let nan = bf16::from_f32(f32::NAN);
    let x = Tensor::<bf16, 2>::from_slice(&stream, [m, k], &a)?;
    let w = Tensor::<bf16, 2>::from_slice(&stream, [n, k], &b)?;
    let mut y = Tensor::<bf16, 2>::full(&stream, [m, n], nan)?;
    let mut z = Tensor::<bf16, 2>::full(&stream, [m, n], nan)?;

    let out = z.tiles_mut()?.schedule(Grouped::<8>);
    hopper::direct::<bf16, 256, 4>::launch(&stream, (x.tma_tiles()?, w.tma_tiles()?, out))?;
    let z = z.to_vec(&stream)?;
    if n % 8 == 0 {
        let out = y.tma_tiles_mut()?.schedule(Grouped::<8>);
        hopper::staged::<bf16, 256, 4>::launch(&stream, (x.tma_tiles()?, w.tma_tiles()?, out))?;
        assert_eq!(y.to_vec(&stream)?, z);
    }
    for i in 0..m {
        for j in 0..n {
            let want: f64 = (0..k).map(|p| a[i * k + p].to_f64() * b[j * k + p].to_f64()).sum();
            let got = z[i * n + j].to_f64();
            let allowed = want.abs() / 256.0 + (k as f64).sqrt() * 1e-5;
            assert!((got - want).abs() <= allowed, "{device}, {m}x{n}x{k}: [{i}, {j}] is {got}, not {want}");
        }
    }
    Ok(())
}

#[test]
fn products() -> Result<()> {
    for device in Device::all() {
        match hopper::staged::<bf16, 256, 4>::prepare(&device) {
            Ok(()) => {}
            Err(e @ Error::NoImageFor { .. }) => {
                println!("{e}");
                continue;
            }
            Err(e) => return Err(e),
        }
        println!("on {device}");
        for shape in [[128, 128, 64], [300, 200, 136], [8, 17, 8], [1, 8, 1000], [70, 0, 8]] {
            product(device, shape)?;
        }
        if !device.is_cpu() {
            for shape in [[1024, 768, 512], [257, 1000, 4104]] {
                product(device, shape)?;
            }
        }
    }
    Ok(())
}
