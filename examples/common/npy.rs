//! Matrices in numpy's `.npy` files: reading any floating-point type, writing f32, f16 or bf16's values.

use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Write};
use std::path::Path;

use half::f16;
use npyz::WriterBuilder;
use tilewright::element::Element;

/// A row-major matrix of f64; a vector is one row.
pub struct Matrix {
    pub rows: usize,
    pub cols: usize,
    pub data: Vec<f64>,
}

/// Reads a vector or a matrix of f16, f32 or f64, in C or Fortran order.
pub fn read(path: &Path) -> Result<Matrix, String> {
    let at = |e: String| format!("{}: {e}", path.display());
    let file = File::open(path).map_err(|e| at(e.to_string()))?;
    let bytes = file.metadata().map_err(|e| at(e.to_string()))?.len();
    let npy = npyz::NpyFile::new(BufReader::new(file)).map_err(|e| at(format!("not an .npy file: {e}")))?;
    let (rows, cols) = match *npy.shape() {
        [n] => (1, n as usize),
        [r, c] => (r as usize, c as usize),
        ref other => return Err(at(format!("expected a matrix or a vector, found {} dimensions", other.len()))),
    };
    // before memory is asked for
    let expected = rows.checked_mul(cols).filter(|&n| n as u64 <= bytes);
    let Some(expected) = expected else {
        return Err(at(format!("truncated: expected {rows} x {cols} elements, found {bytes} bytes")));
    };
    let fortran = npy.order() == npyz::Order::Fortran;
    let dtype = npy.dtype().descr();
    let broken = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::UnexpectedEof => at(format!("truncated: expected {rows} x {cols} elements, found fewer")),
        _ => at(format!("unreadable data: {e}")),
    };
    let data: Vec<f64> = match dtype.trim_matches('\'') {
        "<f2" => npy.into_vec::<f16>().map_err(broken)?.into_iter().map(f64::from).collect(),
        "<f4" => npy.into_vec::<f32>().map_err(broken)?.into_iter().map(f64::from).collect(),
        "<f8" => npy.into_vec::<f64>().map_err(broken)?,
        other => return Err(at(format!("expected elements f16, f32 or f64 (little-endian), found {other}"))),
    };
    if data.len() != expected {
        return Err(at(format!("truncated: expected {rows} x {cols} elements, found {}", data.len())));
    }
    let matrix = Matrix { rows, cols, data };
    Ok(if fortran && rows > 1 {
        let columns = Matrix { rows: cols, cols: rows, data: matrix.data };
        columns.transposed()
    } else {
        matrix
    })
}

/// Writes f32 beside the target first, and renames when all is written: no file is left half written.
pub fn write(path: &Path, rows: usize, cols: usize, data: &[f32]) -> Result<(), String> {
    let at = |e: std::io::Error| format!("{}: {e}", path.display());
    let partial = path.with_extension(format!("npy.{}.partial", std::process::id()));
    let write = || -> std::io::Result<()> {
        let mut file = BufWriter::new(File::create(&partial)?);
        let shape = [rows as u64, cols as u64];
        let mut npy = npyz::WriteOptions::new().default_dtype().shape(&shape).writer(&mut file).begin_nd()?;
        npy.extend(data.iter().copied())?;
        npy.finish()?;
        file.flush()?;
        file.get_ref().sync_all()?;
        fs::rename(&partial, path)
    };
    write().map_err(|e| {
        let _ = fs::remove_file(&partial);
        at(e)
    })
}

impl Matrix {
    /// Rounded to an element type.
    pub fn to<T: Element<Value = f32>>(&self) -> Vec<T> {
        self.data.iter().map(|&v| T::from_value(v as f32)).collect()
    }

    /// Rounded to f32.
    pub fn to_f32(&self) -> Vec<f32> {
        self.data.iter().map(|&v| v as f32).collect()
    }

    /// Rows and columns exchanged.
    pub fn transposed(&self) -> Matrix {
        let data =
            (0..self.cols).flat_map(|c| (0..self.rows).map(move |r| (r, c))).map(|(r, c)| self.data[r * self.cols + c]);
        Matrix { rows: self.cols, cols: self.rows, data: data.collect() }
    }
}
