#![no_main]

mod whole_way;

libfuzzer_sys::fuzz_target!(|data: &[u8]| whole_way::run(Some(systally::import::ImportFormat::TrussCSolaris), data));
