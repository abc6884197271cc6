#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let bytes_max = sanderling_fuzz::MEMORY_BYTES_MAX;
    sanderling_fuzz::fuzz(sanderling_fuzz::wire::greeting, input, bytes_max);
});
