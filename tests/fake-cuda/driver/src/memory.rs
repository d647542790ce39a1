//! Memory of the devices: host memory, with what is known of each piece.

use std::alloc::{Layout, alloc, dealloc};
use std::collections::BTreeMap;

const ALIGN: usize = 512;
const FRESH: u8 = 0xA5;
const FREED: u8 = 0xDB;
/// Freed memory is kept, so that a late access hits nothing else, up to this many bytes.
const KEPT: usize = 64 << 20;

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum State {
    /// Its allocation is enqueued and did not run yet.
    Coming,
    Live,
    Freed,
}

pub struct Piece {
    pub bytes: usize,
    pub device: i32,
    pub state: State,
    /// Somebody has asked for it to be freed, in a stream's order.
    pub going: bool,
    /// Page-locked memory of the host.
    pub host: bool,
}

#[derive(Default)]
pub struct Memory {
    pieces: BTreeMap<u64, Piece>,
    kept: usize,
    /// Bytes in use, by device.
    pub used: [u64; 8],
}

impl Memory {
    pub fn allocate(&mut self, bytes: usize, device: i32, limit: u64, state: State, host: bool) -> Option<u64> {
        let used = self.used.get_mut(device as usize)?;
        if bytes == 0 || (bytes as u64) > limit.saturating_sub(*used) {
            return None;
        }
        let layout = Layout::from_size_align(bytes, ALIGN).ok()?;
        // SAFETY: not of size zero.
        let address = unsafe { alloc(layout) };
        if address.is_null() {
            return None;
        }
        // SAFETY: just allocated.
        unsafe { address.write_bytes(FRESH, bytes) };
        *used += bytes as u64;
        self.pieces.insert(address as u64, Piece { bytes, device, state, going: false, host });
        Some(address as u64)
    }

    pub fn piece(&mut self, address: u64) -> Option<&mut Piece> {
        self.pieces.get_mut(&address).filter(|p| p.state != State::Freed)
    }

    /// The piece that an address lies in, living or not.
    pub fn at(&self, address: u64) -> Option<(u64, &Piece)> {
        let (&base, piece) = self.pieces.range(..=address).next_back()?;
        (address - base < piece.bytes as u64).then_some((base, piece))
    }

    /// Why `bytes` bytes at an address can not be accessed, if so.
    pub fn refuse(&self, address: u64, bytes: usize, device: Option<i32>) -> Option<String> {
        if bytes == 0 {
            return None;
        }
        let Some((base, piece)) = self.at(address) else {
            return Some(format!("{bytes} bytes at {address:#x}: no memory of a device"));
        };
        let what = format!("{bytes} bytes at {address:#x}, in {} bytes at {base:#x}", piece.bytes);
        match piece.state {
            State::Freed => return Some(format!("{what}: freed")),
            State::Coming => return Some(format!("{what}: not allocated yet in the order of this stream")),
            State::Live => {}
        }
        if (address - base) + bytes as u64 > piece.bytes as u64 {
            return Some(format!("{what}: past its end"));
        }
        match device {
            Some(d) if !piece.host && d != piece.device => Some(format!("{what}: of device {}", piece.device)),
            _ => None,
        }
    }

    pub fn free(&mut self, address: u64) -> bool {
        let Some(piece) = self.pieces.get_mut(&address).filter(|p| p.state != State::Freed) else { return false };
        piece.state = State::Freed;
        let bytes = piece.bytes;
        if let Some(used) = self.used.get_mut(piece.device as usize) {
            *used -= bytes as u64;
        }
        // SAFETY: allocated with this size, and never given back while its entry is there.
        unsafe { (address as *mut u8).write_bytes(FREED, bytes) };
        self.kept += bytes;
        if self.kept > KEPT {
            self.kept -= bytes;
            self.pieces.remove(&address);
            // SAFETY: allocated with this layout; its entry is gone.
            unsafe { dealloc(address as *mut u8, Layout::from_size_align_unchecked(bytes, ALIGN)) };
        }
        true
    }

    pub fn live(&self, host: bool) -> usize {
        self.pieces.values().filter(|p| p.state != State::Freed && p.host == host).count()
    }
}
