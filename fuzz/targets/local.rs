#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    sanderling_fuzz::check(sanderling_fuzz::wire::local, input);
});
