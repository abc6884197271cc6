//! Commands that change nothing are refused before they are logged.

use sanderling_protocol::message::{Attributes, ObjectKind};
use sanderling_protocol::{JobId, LeaseId, Millis, Nonce, Refusal, Request};

use super::{Rig, path};

#[test]
fn refused_command_leaves_no_record() {
    let mut rig = Rig::with_nodes(1);
    rig.put("/directory/file", 10);
    let grant = rig.create("/open").unwrap();
    let (directory, file, none) = (path("/directory"), path("/directory/file"), path("/none"));
    let (object, lease, writer) = (grant.object, LeaseId(grant.lease.0 + 1), Nonce(12_345));
    let (kind, job, attributes) = (ObjectKind::Directory, JobId(99), Attributes::none());
    let create = rig.file("/directory/file");
    let (from, to) = (path("/open"), file.clone());
    let ended = Vec::new();
    let requests = [
        Request::Create(create),
        Request::MakeDirectory { path: file.clone(), kind, parents: false, is_listed: true },
        Request::Append { path: directory.clone(), writer },
        Request::Append { path: none.clone(), writer },
        Request::Rename { from: none.clone(), to: path("/other"), replace: false },
        Request::Rename { from, to, replace: false },
        Request::Delete { path: directory, recursive: false },
        Request::Delete { path: none.clone(), recursive: true },
        Request::SetTtl { path: none.clone(), ttl: Some(Millis(1)) },
        Request::SetAttributes { path: none, expected: None, attributes },
        Request::AddBlocks { object, lease, ended, count: 1, avoid: Vec::new() },
        Request::Publish { object, lease, lengths: Vec::new() },
        Request::RenewJob { job },
        Request::EndJob { job },
    ];
    let logged = rig.log.len();
    for request in requests {
        let refused: Result<_, Refusal> = rig.call(request.clone());
        assert!(refused.is_err(), "{request:?}");
        assert_eq!(rig.log.len(), logged, "{request:?} is in the log");
    }
}
