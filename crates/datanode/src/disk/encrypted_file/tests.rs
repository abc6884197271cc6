use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use proptest::prelude::*;
use sanderling_protocol::order::Damage;

use super::super::{BLOCK_SUFFIX, DiskBytes, DiskTier};
use super::*;
use crate::chunk_sums::sums_of;
use crate::encryption_key::{EncryptionKey, salt};
use crate::tier::ReadError;

const UNIT: usize = ENCRYPTED_UNIT_BYTES as usize;

struct Disk {
    directory: tempfile::TempDir,
    tier: Arc<DiskTier>,
}

impl Disk {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let key = EncryptionKey::of([7; 32]);
        let tier = DiskTier::open(directory.path(), 64 << 20, Some(&key)).unwrap();
        Self { directory, tier: Arc::new(tier) }
    }

    fn block(&self, number: u64, bytes: &[u8]) -> DiskBytes {
        append(&DiskBytes::new(&self.tier, BlockId(number)), bytes)
    }

    fn file(&self, number: u64) -> PathBuf {
        let begins = format!("{number:016x}-");
        let files = fs::read_dir(self.directory.path()).unwrap();
        let names = files.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let is_it = |name: &String| name.starts_with(&begins) && name.ends_with(BLOCK_SUFFIX);
        self.directory.path().join(names.into_iter().find(is_it).unwrap())
    }
}

fn append(block: &DiskBytes, bytes: &[u8]) -> DiskBytes {
    block.with(bytes, &sums_of(u64::from(block.length), bytes)).unwrap()
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| b"plain as day "[index % 13]).collect()
}

const FORGED: ReadError = ReadError::Damaged(Damage::Checksum);

#[test]
fn file_shows_nothing_of_its_bytes_and_is_read_as_written() {
    let disk = Disk::new();
    let all = pattern(1 << 20);
    let block = disk.block(1, &all);
    let file = fs::read(disk.file(1)).unwrap();
    assert_eq!(file.len() as u64, file_bytes(1 << 20));
    assert!(!file.windows(13).any(|window| window == b"plain as day "));
    // No two units with the same bytes look alike.
    assert_ne!(file[..4096], file[13 * UNIT..13 * UNIT + 4096]);
    for (offset, length) in [(0, 1 << 20), (1, 300_000), (4095, 2), (1_048_575, 1), (9, 0)] {
        let wanted = &all[offset as usize..(offset + length) as usize];
        assert_eq!(block.read_file(offset, length).unwrap(), wanted);
    }
    let forget = File::open(disk.file(1)).unwrap();
    forget.sync_all().unwrap();
    rustix::fs::fadvise(&forget, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    assert_eq!(block.read_file(5000, 500_000).unwrap(), all[5000..505_000]);
    assert_eq!((block.verify(), block.probe()), (Ok(()), Ok(())));
}

#[test]
fn every_flipped_bit_is_found_by_reads_of_its_unit_and_by_no_other() {
    let disk = Disk::new();
    let block = disk.block(1, &pattern(9000));
    let whole = fs::read(disk.file(1)).unwrap();
    for at in (0..whole.len()).step_by(61).chain(4090..4120).chain(whole.len() - 20..whole.len()) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x20;
        fs::write(disk.file(1), &damaged).unwrap();
        assert_eq!(block.verify(), Err(FORGED), "at {at}");
        for unit in 0..3 {
            let read = block.read_file(unit * 4096, 100);
            assert_eq!(read.is_err(), at / UNIT == unit as usize, "unit {unit}, at {at}");
        }
    }
}

#[test]
fn unit_of_another_file_place_or_time_is_not_taken_for_it() {
    let disk = Disk::new();
    let (all, zeros) = (pattern(3 * 4096), vec![0; 3 * 4096]);
    let (one, same, two) = (disk.block(1, &all), disk.block(2, &all), disk.block(3, &zeros));
    let files = [1, 2, 3].map(|number| fs::read(disk.file(number)).unwrap());
    // Two units change places between files, also of the same bytes, and in one file.
    for (file, from) in [(2, 1), (3, 2)] {
        let (mut here, mut there) = (files[0].clone(), files[from].clone());
        here[UNIT..2 * UNIT].swap_with_slice(&mut there[UNIT..2 * UNIT]);
        fs::write(disk.file(1), here).unwrap();
        fs::write(disk.file(file), there).unwrap();
        let other = if file == 2 { &same } else { &two };
        assert_eq!((one.verify(), other.verify()), (Err(FORGED), Err(FORGED)));
        assert_eq!(one.read_file(4096, 4096), Err(FORGED));
        assert_eq!(one.read_file(0, 4096).unwrap(), all[..4096]);
        fs::write(disk.file(file), &files[from]).unwrap();
    }
    let mut turned = files[0].clone();
    let (first, second) = turned.split_at_mut(UNIT);
    first.swap_with_slice(&mut second[..UNIT]);
    fs::write(disk.file(1), turned).unwrap();
    assert_eq!(one.read_file(0, 10), Err(FORGED));
    fs::write(disk.file(1), &files[1]).unwrap();
    assert_eq!(one.verify(), Err(FORGED), "a whole file in another's place");
    fs::write(disk.file(1), &files[0]).unwrap();
    assert_eq!(one.verify(), Ok(()));
}

#[test]
fn earlier_state_of_a_unit_is_not_taken_for_the_present_one() {
    let disk = Disk::new();
    let first = disk.block(1, b"some bytes");
    let refused = append(&first, b" of one append");
    let before = fs::read(disk.file(1)).unwrap();
    drop(refused);
    // The same length, from the same place.
    let second = append(&first, b" of the other!");
    let now = fs::read(disk.file(1)).unwrap();
    assert_eq!(second.read_file(0, 24).unwrap(), &b"some bytes of the other!"[..]);
    fs::write(disk.file(1), &before).unwrap();
    assert_eq!((second.verify(), first.verify()), (Err(FORGED), Err(FORGED)));
    fs::write(disk.file(1), &now).unwrap();
    assert_eq!((second.verify(), first.verify()), (Ok(()), Ok(())));
}

#[test]
fn no_two_encryptions_of_one_place_are_alike() {
    let disk = Disk::new();
    let first = disk.block(1, b"some bytes");
    let mut seen: Vec<Vec<u8>> = Vec::new();
    for _ in 0..10 {
        drop(append(&first, b" again"));
        let file = fs::read(disk.file(1)).unwrap();
        assert!(!seen.iter().any(|before| before[..8] == file[..8]), "a nonce was used twice");
        seen.push(file);
    }
}

#[test]
fn append_that_fails_leaves_what_was_there_readable() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let file = File::options().create_new(true).read(true).write(true).open(&path).unwrap();
    let cipher = EncryptionKey::of([7; 32]).derive(&salt(), "test");
    let reading = DiskReader::default();
    let medium = Medium { cipher: &cipher, reading: &reading, file: &file };
    let encrypted = EncryptedFile::new(1, BlockId(1));
    let all = pattern(20_000);
    encrypted.append(medium, 0, &all[..5000]).unwrap();
    let read_only = File::open(&path).unwrap();
    for _ in 0..2 {
        let failing = Medium { file: &read_only, ..medium };
        let failed = encrypted.append(failing, 5000, &all[5000..10_000]);
        assert!(matches!(failed, Err(EncryptedFileError::Io(_))), "{failed:?}");
        // What a write that ended in the middle leaves.
        file.write_all_at(&[9; 300], 4112).unwrap();
        for (offset, length) in [(0, 5000), (4000, 1000), (4096, 904), (4999, 1), (0, 4096)] {
            let wanted = &all[offset as usize..(offset + length) as usize];
            assert_eq!(encrypted.read(medium, offset, length).unwrap(), wanted);
        }
        let past = encrypted.read(medium, 0, 5001);
        assert!(matches!(past, Err(EncryptedFileError::Io(_))), "{past:?}");
    }
    encrypted.append(medium, 5000, &all[5000..]).unwrap();
    assert_eq!(encrypted.read(medium, 0, 20_000).unwrap(), all);
}

#[test]
fn process_that_follows_has_another_key() {
    let disk = Disk::new();
    let block = disk.block(1, b"some bytes");
    let left = fs::read(disk.file(1)).unwrap();
    drop(block);
    let Disk { directory, tier } = disk;
    drop(tier);
    let key = EncryptionKey::of([7; 32]);
    let tier = DiskTier::open(directory.path(), 64 << 20, Some(&key)).unwrap();
    let disk = Disk { directory, tier: Arc::new(tier) };
    let block = disk.block(1, b"some bytes");
    assert_ne!(fs::read(disk.file(1)).unwrap(), left);
    fs::write(disk.file(1), left).unwrap();
    assert_eq!(block.verify(), Err(FORGED));
}

proptest! {
    #[test]
    fn every_state_is_read_as_it_was_whatever_was_appended_or_refused_since(
        appends in prop::collection::vec((1_usize..9000, any::<bool>()), 1..20),
    ) {
        let disk = Disk::new();
        let mut all = Vec::new();
        let mut states = vec![DiskBytes::new(&disk.tier, BlockId(1))];
        for (index, (length, is_refused)) in appends.into_iter().enumerate() {
            let bytes = vec![index as u8; length];
            let grown = append(states.last().unwrap(), &bytes);
            if !is_refused || index == 0 {
                all.extend_from_slice(&bytes);
                states.push(grown);
            }
            for state in states.iter().skip(1) {
                let length = state.length;
                prop_assert_eq!(&state.read_file(0, length).unwrap()[..], &all[..length as usize]);
                let from = length / 2;
                let half = state.read_file(from, length - from).unwrap();
                prop_assert_eq!(&half[..], &all[from as usize..length as usize]);
                prop_assert_eq!((state.verify(), state.probe()), (Ok(()), Ok(())));
            }
        }
    }
}
