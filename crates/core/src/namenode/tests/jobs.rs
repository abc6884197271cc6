//! Jobs: a subtree with a lifetime and a quota.

use sanderling_protocol::frame::{decode_body, encode_body};
use sanderling_protocol::message::{
    Create, CreateMode, Grant, JobHints, JobInfo, JobLimits, ObjectKind, RegisterJob,
    RegisterLimitedJob,
};
use sanderling_protocol::{EventKind, Millis, Refusal, Reply, Request};

use super::{MIB, Rig, path};
use crate::catalog::Catalog;

impl Rig {
    pub(super) fn job(&mut self, name: &str, quota_bytes: Option<u64>) -> Result<JobInfo, Refusal> {
        self.job_with(name, quota_bytes, JobHints::default())
    }

    fn job_with(
        &mut self,
        name: &str,
        quota_bytes: Option<u64>,
        hints: JobHints,
    ) -> Result<JobInfo, Refusal> {
        let lease = Millis(5000);
        let request = RegisterJob { path: path(name), lease, quota_bytes, hints };
        match self.call(Request::RegisterJob(request))? {
            Reply::Job(job) => Ok(job),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn subtree_goes_when_the_lease_ends() {
    let mut rig = Rig::with_nodes(2);
    let job = rig.job("/jobs/1", None).unwrap();
    rig.put("/jobs/1/a/b", 100);
    rig.pass(Millis(4000));
    rig.call(Request::RenewJob { job: job.job }).unwrap();
    rig.pass(Millis(4000));
    assert!(rig.stat("/jobs/1/a/b").is_ok());
    rig.pass(Millis(1001));
    assert!(matches!(rig.stat("/jobs/1"), Err(Refusal::NotFound { .. })));
    assert_eq!(rig.used_bytes(), 0);
    let ended = rig.namenode.events_after(0, 100).pop().unwrap();
    assert!(matches!(ended.kind, EventKind::JobEnded { is_expired: true, freed_bytes: 100, .. }));
    let renew = rig.call(Request::RenewJob { job: job.job });
    assert!(matches!(renew, Err(Refusal::UnknownJob { .. })));
}

#[test]
fn kept_subtree_outlives_its_job() {
    let mut rig = Rig::with_nodes(2);
    let hints = JobHints { keep_after_job: true, ..JobHints::default() };
    let job = rig.job_with("/kept", None, hints).unwrap();
    rig.put("/kept/file", 100);
    rig.call(Request::EndJob { job: job.job }).unwrap();
    assert_eq!(rig.stat("/kept/file").unwrap().job, None);
    assert_eq!(rig.call(Request::Jobs).unwrap(), Reply::Jobs(vec![]));
}

#[test]
fn hint_to_delete_after_read_holds_for_every_object_of_the_job() {
    let mut rig = Rig::with_nodes(1);
    let hints = JobHints { delete_after_read: true, ..JobHints::default() };
    rig.job_with("/once", None, hints).unwrap();
    rig.put("/once/a/file", 100);
    rig.put("/outside", 100);
    assert!(rig.stat("/once/a/file").unwrap().delete_after_read);
    assert!(!rig.stat("/outside").unwrap().delete_after_read);
}

#[test]
fn quota_counts_reservations_and_gives_them_back() {
    let mut rig = Rig::with_nodes(2);
    rig.job("/job", Some(2 * u64::from(MIB))).unwrap();
    let first = rig.create("/job/1").unwrap();
    let second = rig.create("/job/2").unwrap();
    assert!(matches!(rig.create("/job/3"), Err(Refusal::QuotaPassed { .. })));
    rig.seal(&first, &[10]).unwrap();
    rig.seal(&second, &[10]).unwrap();
    let grant = rig.create("/job/3").unwrap();
    rig.seal(&grant, &[10]).unwrap();
    let request = Create { inline: Some(vec![1; 100]), ..rig.file("/job/small") };
    rig.call(Request::Create(request)).unwrap();
    let Reply::Jobs(jobs) = rig.call(Request::Jobs).unwrap() else { panic!("not jobs") };
    assert_eq!(jobs[0].used_bytes, 3 * 4096 + 100);
}

#[test]
fn jobs_do_not_nest_and_objects_do_not_cross() {
    let mut rig = Rig::with_nodes(1);
    rig.job("/one", None).unwrap();
    rig.job("/two", None).unwrap();
    assert!(matches!(rig.job("/one/inner", None), Err(Refusal::WrongKind { .. })));
    assert!(matches!(rig.job("/", None), Err(Refusal::BadRequest { .. })));
    rig.put("/one/file", 1);
    let across = Request::Rename { from: path("/one/file"), to: path("/two/file"), replace: false };
    assert!(matches!(rig.call(across), Err(Refusal::CrossesJob { .. })));
    let within =
        Request::Rename { from: path("/one/file"), to: path("/one/other"), replace: false };
    rig.call(within).unwrap();
    let root = Request::Rename { from: path("/one"), to: path("/moved"), replace: false };
    rig.call(root).unwrap();
    assert!(rig.stat("/moved/other").unwrap().job.is_some());
    rig.call(Request::Delete { path: path("/moved"), recursive: true }).unwrap();
    let Reply::Jobs(jobs) = rig.call(Request::Jobs).unwrap() else { panic!("not jobs") };
    assert_eq!(jobs.len(), 1);
}

#[test]
fn object_that_is_sealed_into_a_job_which_began_meanwhile_is_on_its_account() {
    let mut rig = Rig::with_nodes(1);
    rig.put("/d/first", 1000);
    rig.call(Request::Delete { path: path("/d/first"), recursive: false }).unwrap();
    let request = Create { mode: CreateMode::Replace, ..rig.file("/d/f") };
    let grant = rig.create_with(request).unwrap();
    let register = RegisterJob {
        path: path("/d"),
        lease: Millis(60_000),
        quota_bytes: Some(1 << 20),
        hints: JobHints::default(),
    };
    rig.call(Request::RegisterJob(register)).unwrap();
    rig.seal(&grant, &[5000]).unwrap();
    let Reply::Jobs(jobs) = rig.call(Request::Jobs).unwrap() else { panic!("no jobs") };
    assert_eq!(jobs[0].used_bytes, 8192);
    assert_eq!(rig.stat("/d/f").unwrap().job, Some(jobs[0].job));
}

#[test]
fn every_way_to_add_bytes_meets_the_quota_and_what_goes_gives_them_back() {
    let mut rig = Rig::with_nodes(2);
    let quota = u64::from(MIB) + 8192;
    rig.job("/job", Some(quota)).unwrap();
    let used = |rig: &mut Rig| match rig.call(Request::Jobs).unwrap() {
        Reply::Jobs(jobs) => jobs[0].used_bytes,
        other => panic!("{other:?}"),
    };
    let is_full = |refused: Result<_, Refusal>| {
        matches!(refused.map(|_: Grant| ()), Err(Refusal::QuotaPassed { .. }))
    };
    rig.put("/job/a", 8192);
    // A new object, one in place of another, more of one, and more blocks of one.
    let other = rig.create("/job/b").unwrap();
    assert_eq!(used(&mut rig), quota);
    assert!(is_full(rig.create("/job/c")));
    let replace = Create { mode: CreateMode::Replace, ..rig.file("/job/a") };
    assert!(is_full(rig.create_with(replace)));
    let writer = rig.nonce();
    let append = rig.call(Request::Append { path: path("/job/a"), writer });
    assert!(matches!(append, Err(Refusal::QuotaPassed { .. })), "{append:?}");
    let (object, lease) = (other.object, other.lease);
    let more = Request::AddBlocks { object, lease, ended: Vec::new(), count: 1, avoid: Vec::new() };
    assert!(matches!(rig.call(more), Err(Refusal::QuotaPassed { .. })));
    let inline = Create { inline: Some(vec![1; 100]), ..rig.file("/job/small") };
    let small = rig.call(Request::Create(inline.clone()));
    assert!(matches!(small, Err(Refusal::QuotaPassed { .. })), "{small:?}");
    // What was reserved and not used comes back, and what expires, is replaced or deleted.
    rig.seal(&other, &[4096]).unwrap();
    assert_eq!(used(&mut rig), 8192 + 4096);
    rig.call(Request::Create(inline)).unwrap();
    rig.call(Request::SetTtl { path: path("/job/b"), ttl: Some(Millis(1000)) }).unwrap();
    rig.pass(Millis(1001));
    assert_eq!(used(&mut rig), 8192 + 100);
    let replace = Create { mode: CreateMode::Replace, ..rig.file("/job/small") };
    let replaced = rig.create_with(Create { expected_bytes: Some(4096), ..replace }).unwrap();
    rig.seal(&replaced, &[4096]).unwrap();
    assert_eq!(used(&mut rig), 8192 + 4096);
    rig.call(Request::Delete { path: path("/job/a"), recursive: false }).unwrap();
    assert_eq!(used(&mut rig), 4096);
}

#[test]
fn limits_count_names_and_attributes_and_refuse_before_anything_is_made() {
    let mut rig = Rig::with_nodes(1);
    rig.put("/elsewhere", 9);
    let (lease, hints) = (Millis(5000), JobHints::default());
    let job = RegisterJob { path: path("/job"), lease, quota_bytes: None, hints };
    let limits = JobLimits { names: Some(0), attribute_bytes: None };
    let none = RegisterLimitedJob { job: job.clone(), limits };
    let refused = rig.call(Request::RegisterLimitedJob(Box::new(none)));
    assert!(matches!(refused, Err(Refusal::BadRequest { .. })), "{refused:?}");
    let limits = JobLimits { names: Some(4), attribute_bytes: Some(10) };
    let limited = RegisterLimitedJob { job, limits };
    let Ok(Reply::Job(job)) = rig.call(Request::RegisterLimitedJob(Box::new(limited))) else {
        panic!("it is registered")
    };
    let account = |rig: &mut Rig| match rig.call(Request::JobAccount { job: job.job }) {
        Ok(Reply::JobAccount(account)) => (account.names, account.attribute_bytes),
        other => panic!("{other:?}"),
    };
    let value = |rig: &mut Rig, name: &str, text: &str| {
        let attributes = [("a", text)].into_iter().collect();
        Request::Create(Create { inline: Some(vec![1]), attributes, ..rig.file(name) })
    };
    let is_passed = |answer: &Result<Reply, Refusal>, of: &str| match answer {
        Err(Refusal::JobLimitPassed { what, .. }) => what == of,
        _ => false,
    };
    // Four directories above it: none of them is made.
    let deep = value(&mut rig, "/job/1/2/3/4/x", "");
    assert!(is_passed(&rig.call(deep), "names"));
    assert_eq!(account(&mut rig), (1, 0));
    let first = value(&mut rig, "/job/1/x", "12345");
    rig.call(first).unwrap();
    assert_eq!(account(&mut rig), (3, 6));
    let more = value(&mut rig, "/job/1/y", "12345");
    assert!(is_passed(&rig.call(more), "bytes of attributes"));
    let set = |text: &str| Request::SetAttributes {
        path: path("/job/1/x"),
        expected: None,
        attributes: [("a", text)].into_iter().collect(),
    };
    assert!(is_passed(&rig.call(set("1234567890")), "bytes of attributes"));
    rig.call(set("123456789")).unwrap();
    assert_eq!(account(&mut rig), (3, 10));
    // What is written counts from its first block, and goes when it is given up.
    let grant = rig.create("/job/1/z").unwrap();
    assert_eq!(account(&mut rig), (4, 10));
    let another = rig.create("/job/1/w");
    assert!(matches!(another, Err(Refusal::JobLimitPassed { .. })), "{another:?}");
    let (object, lease) = (grant.object, grant.lease);
    let attributes = [("b", "")].into_iter().collect();
    let seal = Request::Seal { object, lease, lengths: Vec::new(), attributes };
    assert!(is_passed(&rig.call(seal), "bytes of attributes"));
    rig.call(Request::Abort { object, lease }).unwrap();
    assert_eq!(account(&mut rig), (3, 10));
    rig.call(set("")).unwrap();
    let made = Request::MakeDirectory {
        path: path("/job/2"),
        kind: ObjectKind::Directory,
        parents: false,
        is_listed: true,
    };
    rig.call(made).unwrap();
    assert_eq!(account(&mut rig), (4, 1));
    // A snapshot does not hold the accounts; they follow from it.
    let image = rig.namenode.catalog().image();
    let read: Catalog = decode_body(&encode_body(&image)).unwrap();
    assert_eq!(read.restored().fsck().problems, Vec::<String>::new());
    rig.call(Request::EndJob { job: job.job }).unwrap();
    assert!(rig.call(Request::JobAccount { job: job.job }).is_err());
}
