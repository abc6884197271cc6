use std::error::Error as _;
use std::path::PathBuf;

use sanderling_core::block_table::StoreRequest;
use sanderling_protocol::checksum::crc32c;

use super::*;
use crate::arena::Arena;
use crate::connection_share::ConnectionShares;
use crate::fair_room::{FairRoom, RoomRequest};
use crate::store::BlockStore;
use crate::tiers::Tiers;

const KEY: TierKey = (BlockId(7), Epoch(3));

static NODE: OperationCaller = OperationCaller::Node;

async fn tier(bytes: u64) -> (tempfile::TempDir, Arc<ObjectTier>) {
    let directory = tempfile::tempdir().unwrap();
    let tier = tier_at(&directory, bytes, None).await;
    (directory, tier)
}

async fn tier_at(
    directory: &tempfile::TempDir,
    bytes: u64,
    key: Option<EncryptionKey>,
) -> Arc<ObjectTier> {
    let url = format!("file://{}", directory.path().display());
    let options = ObjectOptions { url, bytes, ..ObjectOptions::default() };
    let tier = ObjectTier::open(options, key).await.unwrap();
    tier.join(ClusterId(0xc1));
    tier
}

async fn put(
    tier: &Arc<ObjectTier>,
    key: TierKey,
    bytes: &'static [u8],
) -> Result<ObjectBytes, Refusal> {
    tier.put(key, Bytes::from_static(bytes), crc32c(bytes), &NODE).await
}

fn file(directory: &tempfile::TempDir, (block, epoch): TierKey) -> PathBuf {
    let name = format!("{:016x}-{}", block.0, epoch.0);
    directory.path().join(ClusterId(0xc1).to_string()).join(name)
}

#[tokio::test]
async fn object_is_fetched_as_it_was_put_and_stays_when_its_node_forgets_it() {
    let (directory, tier) = tier(1 << 20).await;
    let held = put(&tier, KEY, b"some bytes").await.unwrap();
    assert_eq!(tier.capacity.used_bytes(), 4096);
    let fetched = held.fetch(&NODE).await.unwrap();
    assert_eq!(
        (&fetched.bytes[..], fetched.sums.whole()),
        (&b"some bytes"[..], crc32c(b"some bytes"))
    );
    drop(held);
    assert_eq!(tier.capacity.used_bytes(), 0);
    assert!(file(&directory, KEY).exists());
    assert_eq!(tier.length(KEY).await, Ok(Some(10)));
    tier.remove(KEY).await.unwrap();
    tier.remove(KEY).await.unwrap();
    assert!(!file(&directory, KEY).exists());
    assert_eq!(tier.length(KEY).await, Ok(None));
    assert!(tier.fetch(KEY, &NODE).await.unwrap().is_none());
    assert!(tier.is_known_absent(KEY));
}

#[tokio::test]
async fn damaged_object_is_refused_and_never_read() {
    let directory = tempfile::tempdir().unwrap();
    for key in [None, Some(EncryptionKey::of([7; 32]))] {
        assert_damage_is_found(&directory, key).await;
    }
}

async fn assert_damage_is_found(directory: &tempfile::TempDir, key: Option<EncryptionKey>) {
    let tier = tier_at(directory, 1 << 20, key).await;
    let held = put(&tier, KEY, b"some bytes").await.unwrap();
    let _other = put(&tier, (BlockId(8), Epoch(3)), b"other ones").await.unwrap();
    let file = |directory: &&tempfile::TempDir, key| file(directory, key);
    let whole = std::fs::read(file(&directory, KEY)).unwrap();
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        std::fs::write(file(&directory, KEY), &damaged).unwrap();
        let refused = held.fetch(&NODE).await.unwrap_err();
        assert_eq!(refused, ReadError::Damaged(Damage::Checksum), "changed at {at}");
    }
    for cut in 0..whole.len() {
        std::fs::write(file(&directory, KEY), &whole[..cut]).unwrap();
        let refused = held.fetch(&NODE).await.unwrap_err();
        assert_eq!(refused, ReadError::Damaged(Damage::Checksum), "cut at {cut}");
    }
    std::fs::remove_file(file(&directory, KEY)).unwrap();
    assert_eq!(held.fetch(&NODE).await.unwrap_err(), ReadError::Damaged(Damage::Missing));
    std::fs::write(file(&directory, KEY), &whole).unwrap();
    assert_eq!(held.fetch(&NODE).await.unwrap().bytes, "some bytes");
}

#[tokio::test]
async fn object_in_the_place_of_another_is_refused() {
    let (directory, tier) = tier(1 << 20).await;
    let other = (BlockId(8), Epoch(3));
    let _held = put(&tier, KEY, b"some bytes").await.unwrap();
    let _other = put(&tier, other, b"other ones").await.unwrap();
    std::fs::copy(file(&directory, other), file(&directory, KEY)).unwrap();
    assert!(matches!(tier.fetch(KEY, &NODE).await, Err(Refusal::BlockDamaged { .. })));
}

#[tokio::test]
async fn object_that_is_missing_from_an_empty_store_is_not_taken_for_lost() {
    let (directory, tier) = tier(1 << 20).await;
    let held = put(&tier, KEY, b"some bytes").await.unwrap();
    let _other = put(&tier, (BlockId(8), Epoch(3)), b"other ones").await.unwrap();
    let (at, aside) = (directory.path().join(ClusterId(0xc1).to_string()), directory.path());
    std::fs::rename(&at, aside.join("aside")).unwrap();
    let failed = held.fetch(&NODE).await.unwrap_err();
    assert!(matches!(failed, ReadError::Refused(Refusal::TierFailed { .. })), "{failed:?}");
    std::fs::rename(aside.join("aside"), &at).unwrap();
    std::fs::remove_file(file(&directory, KEY)).unwrap();
    assert_eq!(held.fetch(&NODE).await.unwrap_err(), ReadError::Damaged(Damage::Missing));
}

#[tokio::test]
async fn full_tier_refuses_and_takes_what_is_there_already() {
    let (_directory, tier) = tier(8192).await;
    let first = put(&tier, KEY, b"first").await.unwrap();
    let second = tier.adopted((BlockId(8), Epoch(1)), 8192);
    let refused = put(&tier, (BlockId(9), Epoch(1)), b"third").await;
    assert!(matches!(refused, Err(Refusal::NodeFull { .. })), "{refused:?}");
    drop((first, second));
    put(&tier, (BlockId(9), Epoch(1)), b"third").await.unwrap();
}

#[tokio::test]
async fn store_that_cannot_be_used_is_reported_at_the_start() {
    for url in ["ftp://host/place", "file://relative", "s3://", "/tmp"] {
        let options = ObjectOptions { url: url.to_owned(), ..ObjectOptions::default() };
        let refused = ObjectTier::open(options, None).await.unwrap_err();
        assert!(matches!(refused, ObjectTierError::UnknownUrl { .. }), "{url}: {refused}");
    }
    let url = "file:///does/not/exist".to_owned();
    let refused = ObjectTier::open(ObjectOptions { url, ..ObjectOptions::default() }, None).await;
    let refused = refused.unwrap_err();
    let cause = refused.source().and_then(|it| it.downcast_ref::<Box<UnusableStore>>()).unwrap();
    let store = cause.source().and_then(|it| it.downcast_ref::<object_store::Error>()).unwrap();
    let text = "the object tier at file:///does/not/exist cannot be used: ";
    assert_eq!(refused.to_string(), format!("{text}{store}"));
    let options = ObjectOptions {
        url: "s3://bucket/prefix".to_owned(),
        settings: vec![
            ("AWS_ENDPOINT_URL".to_owned(), "http://127.0.0.1:1".to_owned()),
            ("AWS_ACCESS_KEY_ID".to_owned(), "someone".to_owned()),
            ("AWS_SECRET_ACCESS_KEY".to_owned(), "the secret".to_owned()),
        ],
        time_max: Duration::from_secs(1),
        ..ObjectOptions::default()
    };
    assert!(!format!("{options:?}").contains("the secret"));
    let refused = ObjectTier::open(options, None).await.unwrap_err();
    assert!(matches!(refused, ObjectTierError::Unusable { .. }), "{refused}");
    assert!(!refused.to_string().contains("the secret"), "{refused}");
}

#[test]
fn user_or_password_in_a_url_or_an_endpoint_is_refused_and_not_repeated() {
    let options = |url: &str, name: &str, endpoint: &str| ObjectOptions {
        url: url.to_owned(),
        settings: vec![(name.to_owned(), endpoint.to_owned())],
        ..ObjectOptions::default()
    };
    let (name, plain) = ("AWS_ENDPOINT_URL", "http://127.0.0.1:1");
    for (url, name, endpoint, place) in [
        ("s3://bucket/a", name, "http://AKIA:TOPSECRET@127.0.0.1:1", name),
        ("s3://bucket/a", name, "http://AKIA:TOP/TOPSECRET@127.0.0.1:1", name),
        ("s3://bucket/a", "AWS_ENDPOINT", "TOPSECRET@127.0.0.1:1", "AWS_ENDPOINT"),
        ("s3://AKIA:TOPSECRET@bucket/a", name, plain, "the URL"),
        ("s3://AKIA:TOP/TOPSECRET@bucket/a", name, plain, "the URL"),
        ("s3://TOPSECRET@bucket", name, plain, "the URL"),
    ] {
        let refused = options(url, name, endpoint).open().unwrap_err().to_string();
        assert!(refused.starts_with(&format!("{place} has a user or a password; ")), "{refused}");
        assert!(!refused.contains("TOPSECRET"), "{refused}");
    }
    options("s3://bucket/user@host/a", name, plain).open().unwrap();
}

#[tokio::test]
async fn readers_of_one_block_share_one_fetch_and_the_next_one_needs_none() {
    let (directory, tier) = tier(1 << 20).await;
    let held = put(&tier, KEY, b"some bytes").await.unwrap();
    let both = tokio::join!(held.fetch(&NODE), tier.fetch(KEY, &NODE));
    assert_eq!(both.0.unwrap().bytes, both.1.unwrap().unwrap().bytes);
    std::fs::remove_file(file(&directory, KEY)).unwrap();
    assert_eq!(held.fetch(&NODE).await.unwrap().bytes, "some bytes", "kept from the last fetch");
}

/// An object that hangs: opening a pipe to read waits for a process that writes.
struct Pipe(PathBuf);

impl Pipe {
    fn at(path: PathBuf) -> Self {
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        Self(path)
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        // What opens it goes on, and finds nothing in it.
        let opened = std::fs::OpenOptions::new().read(true).write(true).open(&self.0);
        let _ = std::fs::remove_file(&self.0);
        drop(opened);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn place_of_a_caller_is_taken_until_the_store_has_done_what_it_left() {
    const HANGS: TierKey = (BlockId(8), Epoch(1));
    let (directory, tier) = tier(1 << 20).await;
    let held = put(&tier, KEY, b"some bytes").await.unwrap();
    let pipe = Pipe::at(file(&directory, HANGS));
    let places = FairRoom::new(RoomBounds { units_max: 8, waiting_max: 8 }, "place");
    let user = Arc::clone(&ConnectionShares::default().connection(None).objects);
    let caller = OperationCaller::Tenant { places: places.clone(), user: Arc::clone(&user) };
    for _ in 0..3 {
        let reading = tier.fetch(HANGS, &caller);
        assert!(timeout(Duration::from_millis(50), reading).await.is_err(), "the store hangs");
    }
    let requested = [(); 4].map(|()| places.request(&user, 1).unwrap());
    let have_room = requested.each_ref().map(|it| matches!(it, RoomRequest::Granted(_)));
    assert_eq!(have_room, [true, true, true, false], "one is for the only operation");
    held.fetch(&NODE).await.unwrap();
    assert_eq!(held.fetch(&caller).await.unwrap().bytes, "some bytes", "kept: it needs none");
    drop(pipe);
    let mut taken = Vec::new();
    for request in requested {
        taken.push(request.granted().await.expect("the place comes back when the store is done"));
    }
}

#[tokio::test]
async fn encrypted_object_shows_nothing_of_its_block_and_is_read_with_the_same_key() {
    let directory = tempfile::tempdir().unwrap();
    let key = EncryptionKey::of([7; 32]);
    let tier = tier_at(&directory, 1 << 20, Some(key.clone())).await;
    let held = put(&tier, KEY, b"some bytes").await.unwrap();
    let first = std::fs::read(file(&directory, KEY)).unwrap();
    assert!(!first.windows(5).any(|window| window == b"bytes"));
    assert_eq!(held.fetch(&NODE).await.unwrap().bytes, "some bytes");
    assert_eq!(tier.length(KEY).await, Ok(Some(10)));
    // Put again, it has another key: no nonce is used twice.
    let _again = put(&tier, KEY, b"some bytes").await.unwrap();
    assert_ne!(std::fs::read(file(&directory, KEY)).unwrap()[..10], first[..10]);
    let other = tier_at(&directory, 1 << 20, Some(key)).await;
    assert_eq!(other.fetch(KEY, &NODE).await.unwrap().unwrap().bytes, "some bytes");
    other.check_key(ClusterId(0xc1)).await.unwrap();
    // What another block, epoch or cluster has is not taken for it, whole as it is.
    for place in [(BlockId(8), Epoch(3)), (BlockId(7), Epoch(4))] {
        std::fs::copy(file(&directory, KEY), file(&directory, place)).unwrap();
        let refused = other.fetch(place, &NODE).await;
        assert!(matches!(refused, Err(Refusal::BlockDamaged { .. })), "{refused:?}");
    }
    let elsewhere = directory.path().join(ClusterId(0xc2).to_string());
    std::fs::rename(directory.path().join(ClusterId(0xc1).to_string()), elsewhere).unwrap();
    let tier = ObjectTier::open(other.options.clone(), Some(EncryptionKey::of([7; 32]))).await;
    let tier = tier.unwrap();
    tier.join(ClusterId(0xc2));
    assert!(matches!(tier.fetch(KEY, &NODE).await, Err(Refusal::BlockDamaged { .. })));
}

#[tokio::test]
async fn object_of_another_key_is_neither_read_nor_taken_for_damaged() {
    let keys = [None, Some(EncryptionKey::of([1; 32])), Some(EncryptionKey::of([2; 32]))];
    for writer in &keys {
        let directory = tempfile::tempdir().unwrap();
        let tier = tier_at(&directory, 1 << 20, writer.clone()).await;
        let _held = put(&tier, KEY, b"some bytes").await.unwrap();
        for reader in keys.iter().filter(|key| *key != writer) {
            let tier = tier_at(&directory, 1 << 20, reader.clone()).await;
            let expected = match (writer, reader) {
                (_, None) => "this node has no key",
                (None, _) => "is not encrypted",
                _ => "encrypted with another key",
            };
            let refused = tier.check_key(ClusterId(0xc1)).await.unwrap_err();
            assert!(refused.to_string().contains(expected), "{refused}");
            tier.check_key(ClusterId(0xc2)).await.unwrap();
            let held = tier.adopted(KEY, 10);
            let read = held.fetch(&NODE).await.unwrap_err();
            let ReadError::Refused(Refusal::TierFailed { why, .. }) = read else {
                panic!("{read:?}");
            };
            assert!(why.contains(expected), "{why}");
            let length = tier.length(KEY).await;
            assert!(matches!(length, Err(Refusal::TierFailed { .. })), "{length:?}");
        }
        assert!(file(&directory, KEY).exists());
        assert_eq!(tier.fetch(KEY, &NODE).await.unwrap().unwrap().bytes, "some bytes");
    }
}

#[tokio::test]
async fn namenode_is_asked_about_the_object_of_a_dropped_block() {
    let (_directory, tier) = tier(1 << 20).await;
    let arena = Arc::new(Arena::new(4096).unwrap());
    let store = BlockStore::new(Tiers::new(arena, None, Some(Arc::clone(&tier))), u64::MAX);
    let bytes = Bytes::from_static(b"some bytes");
    for (block, epoch) in [KEY, (BlockId(8), Epoch(3))] {
        let request = StoreRequest { block, epoch, tier: Tier::Object, bytes: 10 };
        let stored = store.store_object(request, bytes.clone(), crc32c(&bytes), &NODE);
        stored.await.unwrap();
    }
    store.drop_blocks(&[KEY]);
    assert_eq!(tier.garbage.len(), 1);
    store.drop_held(&store.list(BlockId(0), 10));
    assert_eq!(tier.garbage.len(), 2);
}
