//! The 8-bit floating-point element: a sign, four bits of exponent (bias 7), three of mantissa; no infinities, NaN where all
//! seven are ones, 448 at most. (Micikevicius et al., "FP8 formats for deep learning".)

/// An 8-bit floating-point number of four bits of exponent and three of mantissa.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub struct e4m3(u8);

// SAFETY: a transparent u8.
unsafe impl bytemuck::Zeroable for e4m3 {}
// SAFETY: as above.
unsafe impl bytemuck::Pod for e4m3 {}

impl PartialEq for e4m3 {
    #[inline(always)]
    fn eq(&self, other: &Self) -> bool {
        self.to_f32() == other.to_f32()
    }
}

impl core::fmt::Debug for e4m3 {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Debug::fmt(&self.to_f32(), f)
    }
}

impl e4m3 {
    /// The greatest number.
    pub const MAX: f32 = 448.0;

    /// From its bits.
    #[inline(always)]
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }
    /// Its bits.
    #[inline(always)]
    pub const fn to_bits(self) -> u8 {
        self.0
    }
    /// Exact.
    #[inline(always)]
    pub fn to_f32(self) -> f32 {
        let (sign, rest) = ((self.0 as u32 & 0x80) << 24, self.0 as u32 & 0x7f);
        if rest == 0x7f {
            return f32::from_bits(sign | 0x7fc0_0000);
        }
        // the exponent where f32 has it, then the difference of the biases: right for subnormals too
        const BIAS: f32 = f32::from_bits((127 + 120) << 23);
        f32::from_bits(f32::to_bits(f32::from_bits(rest << 20) * BIAS) | sign)
    }
    /// To nearest even; what is greater than the greatest number, infinities too, becomes that.
    #[inline(always)]
    pub fn from_f32(v: f32) -> Self {
        let bits = v.to_bits();
        let (sign, a) = (bits >> 24 & 0x80, bits & 0x7fff_ffff);
        let b = if a > Self::MAX.to_bits() { Self::MAX.to_bits() } else { a };
        // the last bit that is kept, and a half of it less one: carries go up into the exponent
        let normal = ((b + 0x7_ffff + (b >> 20 & 1)) >> 20).wrapping_sub((127 - 7) << 3);
        // below 2^-6 all are multiples of 2^-9, which is the last bit of 2^14
        const LIFT: f32 = 16384.0;
        let small = (f32::from_bits(b) + LIFT).to_bits().wrapping_sub(LIFT.to_bits());
        let rest = if a > 0x7f80_0000 {
            0x7f
        } else if b < (127 - 6) << 23 {
            small
        } else {
            normal
        };
        Self((sign | rest) as u8)
    }
}

#[cfg(all(test, not(target_arch = "nvptx64")))]
mod tests {
    use super::*;

    fn by_definition(bits: u8) -> f32 {
        let (e, m) = (i32::from(bits >> 3 & 15), f32::from(bits & 7));
        let size = match (e, bits & 7) {
            (15, 7) => f32::NAN,
            (0, _) => m * 2f32.powi(-9),
            _ => (1.0 + m / 8.0) * 2f32.powi(e - 7),
        };
        if bits & 0x80 == 0 { size } else { -size }
    }

    #[test]
    fn every_number_is_what_its_bits_say_and_comes_back() {
        for bits in 0..=255 {
            let x = e4m3::from_bits(bits);
            let want = by_definition(bits);
            assert!(x.to_f32().to_bits() == want.to_bits() || x.to_f32().is_nan() && want.is_nan(), "{bits}");
            assert_eq!(e4m3::from_f32(x.to_f32()).to_bits(), bits);
        }
    }

    #[test]
    fn between_two_numbers_the_nearer_is_taken_and_of_equally_near_ones_the_even() {
        for bits in 0..0x7e_u8 {
            let (low, high) = (by_definition(bits), by_definition(bits + 1));
            let half = low / 2.0 + high / 2.0;
            let even = if bits % 2 == 0 { bits } else { bits + 1 };
            for (v, want) in [(half, even), (half.next_down(), bits), (half.next_up(), bits + 1)] {
                assert_eq!(e4m3::from_f32(v).to_bits(), want, "{v}");
                assert_eq!(e4m3::from_f32(-v).to_bits(), want | 0x80, "{v}");
            }
        }
    }

    #[test]
    fn what_is_too_large_becomes_the_greatest_and_nan_stays() {
        for v in [449.0, 464.0, 465.0, 1e30, f32::INFINITY] {
            assert_eq!(e4m3::from_f32(v).to_f32(), 448.0);
            assert_eq!(e4m3::from_f32(-v).to_f32(), -448.0);
        }
        assert!(e4m3::from_f32(f32::NAN).to_f32().is_nan());
    }
}
