//! SHA-256 (FIPS 180-4), written out so that this crate needs no dependency.

const fn primes() -> [u32; 64] {
    let mut p = [0; 64];
    let (mut n, mut i) = (2, 0);
    while i < 64 {
        let (mut d, mut prime) = (2, true);
        while d * d <= n {
            if n % d == 0 {
                prime = false;
            }
            d += 1;
        }
        if prime {
            p[i] = n;
            i += 1;
        }
        n += 1;
    }
    p
}

/// The first 32 bits of the fraction of the square (`root` 2) or cube (`root` 3) root of `p`: the largest `x` with
/// `x^root <= p * 2^(32 root)`, by bisection.
const fn fraction(p: u32, root: u32) -> u32 {
    let (mut low, mut high) = (0u128, 1u128 << 37);
    while high - low > 1 {
        let mid = (low + high) / 2;
        if mid.pow(root) <= (p as u128) << (32 * root) {
            low = mid;
        } else {
            high = mid;
        }
    }
    low as u32
}

const fn table<const N: usize>(root: u32) -> [u32; N] {
    let (p, mut t, mut i) = (primes(), [0; N], 0);
    while i < N {
        t[i] = fraction(p[i], root);
        i += 1;
    }
    t
}

static K: [u32; 64] = table(3);
static START: [u32; 8] = table(2);

fn block(state: &mut [u32; 8], chunk: &[u8]) {
    let mut w = [0u32; 64];
    for (i, b) in chunk.chunks_exact(4).enumerate() {
        w[i] = u32::from_be_bytes([b[0], b[1], b[2], b[3]]);
    }
    for i in 16..64 {
        let (x, y) = (w[i - 15], w[i - 2]);
        let s0 = x.rotate_right(7) ^ x.rotate_right(18) ^ (x >> 3);
        let s1 = y.rotate_right(17) ^ y.rotate_right(19) ^ (y >> 10);
        w[i] = w[i - 16].wrapping_add(s0).wrapping_add(w[i - 7]).wrapping_add(s1);
    }
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    for i in 0..64 {
        let s1 = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
        let choice = (e & f) ^ (!e & g);
        let t1 = h.wrapping_add(s1).wrapping_add(choice).wrapping_add(K[i]).wrapping_add(w[i]);
        let s0 = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
        let majority = (a & b) ^ (a & c) ^ (b & c);
        (h, g, f, e) = (g, f, e, d.wrapping_add(t1));
        (d, c, b, a) = (c, b, a, t1.wrapping_add(s0).wrapping_add(majority));
    }
    for (s, v) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *s = s.wrapping_add(v);
    }
}

/// The SHA-256 of `data` in lower-case hexadecimal.
pub fn sha256(data: &[u8]) -> String {
    let mut state = START;
    let whole = data.chunks_exact(64);
    let mut tail = whole.remainder().to_vec();
    whole.for_each(|c| block(&mut state, c));
    tail.push(0x80);
    while tail.len() % 64 != 56 {
        tail.push(0);
    }
    tail.extend((data.len() as u64 * 8).to_be_bytes());
    tail.chunks_exact(64).for_each(|c| block(&mut state, c));
    state.iter().map(|w| format!("{w:08x}")).collect()
}

/// The first 32 digits of [`sha256`]: enough to tell files apart, and readable in a manifest.
pub fn short(data: &[u8]) -> String {
    let mut h = sha256(data);
    h.truncate(32);
    h
}

#[cfg(test)]
mod tests {
    use super::sha256;

    #[test]
    fn known_answers() {
        let cases = [
            ("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
            ("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            (
                "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
            ),
        ];
        for (text, hash) in cases {
            assert_eq!(sha256(text.as_bytes()), hash);
        }
        assert_eq!(sha256(&vec![b'a'; 1_000_000]), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    }
}
