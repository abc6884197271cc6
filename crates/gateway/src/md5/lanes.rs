//! The steps of MD5, done for several streams beside each other. The loops over lanes are written
//! so that the compiler makes vector instructions of them.

/// What MD5 works on at once (RFC 1321, section 3.4).
pub(super) const CHUNK_BYTES: usize = 64;

/// What one stream carries from chunk to chunk: A, B, C and D.
pub(super) type Md5State = [u32; 4];

/// The integer part of 2^32 times abs(sin(i)), i in radians from 1 on (RFC 1321, section 3.4).
const SINES: [[u32; 16]; 4] = [
    [
        0xd76a_a478,
        0xe8c7_b756,
        0x2420_70db,
        0xc1bd_ceee,
        0xf57c_0faf,
        0x4787_c62a,
        0xa830_4613,
        0xfd46_9501,
        0x6980_98d8,
        0x8b44_f7af,
        0xffff_5bb1,
        0x895c_d7be,
        0x6b90_1122,
        0xfd98_7193,
        0xa679_438e,
        0x49b4_0821,
    ],
    [
        0xf61e_2562,
        0xc040_b340,
        0x265e_5a51,
        0xe9b6_c7aa,
        0xd62f_105d,
        0x0244_1453,
        0xd8a1_e681,
        0xe7d3_fbc8,
        0x21e1_cde6,
        0xc337_07d6,
        0xf4d5_0d87,
        0x455a_14ed,
        0xa9e3_e905,
        0xfcef_a3f8,
        0x676f_02d9,
        0x8d2a_4c8a,
    ],
    [
        0xfffa_3942,
        0x8771_f681,
        0x6d9d_6122,
        0xfde5_380c,
        0xa4be_ea44,
        0x4bde_cfa9,
        0xf6bb_4b60,
        0xbebf_bc70,
        0x289b_7ec6,
        0xeaa1_27fa,
        0xd4ef_3085,
        0x0488_1d05,
        0xd9d4_d039,
        0xe6db_99e5,
        0x1fa2_7cf8,
        0xc4ac_5665,
    ],
    [
        0xf429_2244,
        0x432a_ff97,
        0xab94_23a7,
        0xfc93_a039,
        0x655b_59c3,
        0x8f0c_cc92,
        0xffef_f47d,
        0x8584_5dd1,
        0x6fa8_7e4f,
        0xfe2c_e6e0,
        0xa301_4314,
        0x4e08_11a1,
        0xf753_7e82,
        0xbd3a_f235,
        0x2ad7_d2bb,
        0xeb86_d391,
    ],
];

/// By how many bits each step of a round rotates, over and over.
const ROTATIONS: [[u32; 4]; 4] =
    [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];

/// One word of every stream.
type Lanes<const N: usize> = [u32; N];

/// Takes whole chunks of every stream in, of all as many.
///
/// # Panics
/// If the inputs differ in length or are no whole chunks.
#[inline(never)]
pub(super) fn compress<const N: usize>(states: &mut [Md5State; N], inputs: &[&[u8]; N]) {
    let bytes = inputs[0].len();
    assert!(bytes.is_multiple_of(CHUNK_BYTES), "whole chunks are taken in");
    assert!(inputs.iter().all(|input| input.len() == bytes), "of all streams as many");
    let mut lanes: [Lanes<N>; 4] =
        std::array::from_fn(|word| std::array::from_fn(|lane| states[lane][word]));
    for at in (0..bytes).step_by(CHUNK_BYTES) {
        let mut words = [[0_u32; N]; 16];
        for (lane, input) in inputs.iter().enumerate() {
            let chunk = input[at..at + CHUNK_BYTES].chunks_exact(4);
            for (word, bytes) in words.iter_mut().zip(chunk) {
                word[lane] = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            }
        }
        take_in(&mut lanes, &words);
    }
    for (lane, state) in states.iter_mut().enumerate() {
        *state = std::array::from_fn(|word| lanes[word][lane]);
    }
}

/// The 64 steps for one chunk of every stream.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "one place in several arrays")]
fn take_in<const N: usize>(state: &mut [Lanes<N>; 4], words: &[Lanes<N>; 16]) {
    let [mut a, mut b, mut c, mut d] = *state;
    macro_rules! step {
        ($round:literal, $at:literal, $word:expr, ($b:ident $c:ident $d:ident) $mixed:expr) => {{
            let word = &words[$word % 16];
            let (sine, rotation) = (SINES[$round][$at], ROTATIONS[$round][$at % 4]);
            let mut next = [0_u32; N];
            for lane in 0..N {
                let ($b, $c, $d) = (b[lane], c[lane], d[lane]);
                let sum = a[lane].wrapping_add($mixed);
                let sum = sum.wrapping_add(word[lane].wrapping_add(sine));
                next[lane] = sum.rotate_left(rotation).wrapping_add($b);
            }
            (a, d, c, b) = (d, c, b, next);
        }};
    }
    // Which word each step takes: RFC 1321, section 3.4.
    macro_rules! first {
        ($at:literal) => {
            step!(0, $at, $at, (b c d) d ^ (b & (c ^ d)))
        };
    }
    macro_rules! second {
        ($at:literal) => {
            step!(1, $at, 5 * $at + 1, (b c d) c ^ (d & (b ^ c)))
        };
    }
    macro_rules! third {
        ($at:literal) => {
            step!(2, $at, 3 * $at + 5, (b c d) b ^ c ^ d)
        };
    }
    macro_rules! fourth {
        ($at:literal) => {
            step!(3, $at, 7 * $at, (b c d) c ^ (b | !d))
        };
    }
    macro_rules! round {
        ($step:ident) => {
            $step!(0);
            $step!(1);
            $step!(2);
            $step!(3);
            $step!(4);
            $step!(5);
            $step!(6);
            $step!(7);
            $step!(8);
            $step!(9);
            $step!(10);
            $step!(11);
            $step!(12);
            $step!(13);
            $step!(14);
            $step!(15);
        };
    }
    round!(first);
    round!(second);
    round!(third);
    round!(fourth);
    for (kept, new) in state.iter_mut().zip([a, b, c, d]) {
        for lane in 0..N {
            kept[lane] = kept[lane].wrapping_add(new[lane]);
        }
    }
}
