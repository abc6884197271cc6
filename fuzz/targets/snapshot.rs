#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let bytes_max = sanderling_fuzz::CATALOG_BYTES_MAX;
    sanderling_fuzz::fuzz(sanderling_fuzz::disk::snapshot, input, bytes_max);
});
