//! Real processes with a secret: what each role and each right allows, and nothing beyond.

use crate::cluster::guarded::{Guarded, Line, text};
use crate::cluster::{block_on, bytes_of, http, path, run, sanderling};
use crate::security::is_forbidden;
use crate::tokens::{call, is_refused, operate, read, stored};
use sanderling_protocol::frame::{decode_body, encode_body};
use sanderling_protocol::limits::REVOCATIONS_MAX;
use sanderling_protocol::{
    BlockId, Header, LeaseId, Millis, NodeId, NodeSelector, ObjectId, Op, Order, Refusal, Reply,
    Request, Token, TokenId, TokenSelector,
};
use sanderling_transport::unix_seconds;

/// Connects with a token of these flags.
async fn line(guarded: &Guarded, address: &str, flags: &[&str]) -> Line {
    let line = Line::to(guarded, address, &guarded.token(flags)).await;
    line.unwrap_or_else(|error| panic!("{flags:?}: {error}"))
}

/// Returns whether the token allows what was answered, however it was answered otherwise.
fn allows<T>(answer: &Result<T, Refusal>) -> bool {
    !matches!(answer, Err(Refusal::Forbidden { .. }))
}

#[test]
fn tokens_of_servers_see_nodes_and_all_jobs_and_those_of_managers_alone_names() {
    let guarded = Guarded::start(1);
    let tenant = guarded.token(&[]);
    for job in ["/x", "/y"] {
        operate(&guarded, &tenant, &["job", "new", job, "--lease", "1h"]);
    }
    let namenode = &guarded.cluster.namenode.address;
    block_on(async {
        let client = guarded.cluster.client_of(guarded.config(&tenant)).await;
        stored(&client, "/a").await;
        let object = client.stat(&path("/a")).await.expect("it is there").object;
        let (a, root) = (path("/a"), path("/"));
        for (role, reads) in [("datanode", false), ("manager", true)] {
            let line = line(&guarded, namenode, &["--role", role]).await;
            let (after, limit) = (String::new(), 9);
            for request in [
                Request::Lookup { path: a.clone(), offset: 0, bytes: 1 },
                Request::LookupObject { object, offset: 0, bytes: 1 },
                Request::Stat { path: a.clone() },
                Request::Usage { path: root.clone() },
                Request::List { path: root.clone(), after, limit, with_attributes: true },
            ] {
                let answer = call(&line, request.clone()).await;
                assert_eq!(answer.is_ok(), reads, "{role}: {request:?}: {answer:?}");
                assert!(reads || !allows(&answer), "{role}: {request:?}: {answer:?}");
            }
            let events = Request::Events { after: 0, limit: 9, wait: Millis(0) };
            for request in [Request::Nodes { all: true }, events, Request::Report] {
                let answer = call(&line, request.clone()).await;
                assert!(answer.is_ok(), "{role}: {request:?}: {answer:?}");
            }
            let Ok(Reply::Jobs(jobs)) = call(&line, Request::Jobs).await else {
                panic!("a {role} lists the jobs")
            };
            let mut paths: Vec<String> = jobs.iter().map(|job| job.path.to_string()).collect();
            paths.sort_unstable();
            assert_eq!(paths, ["/x", "/y"], "{role}");
            for job in jobs.iter().map(|job| job.job) {
                for request in [Request::RenewJob { job }, Request::EndJob { job }] {
                    let answer = call(&line, request.clone()).await;
                    assert!(!allows(&answer), "{role}: {request:?}: {answer:?}");
                }
            }
        }
        assert_eq!(client.jobs().await.expect("its own").len(), 2);
    });
}

#[test]
fn token_of_a_datanode_gives_notices_of_any_node_and_that_of_a_manager_none() {
    let guarded = Guarded::start(2);
    let namenode = &guarded.cluster.namenode.address;
    block_on(async {
        for (role, gives) in [("datanode", true), ("manager", false)] {
            let line = line(&guarded, namenode, &["--role", role]).await;
            for server in &guarded.cluster.datanodes {
                let node = NodeSelector::from(NodeId(server.node));
                let reason = || "a test".to_owned();
                for request in [
                    Request::Recommend {
                        node: node.clone(),
                        reason: reason(),
                        is_withdrawn: false,
                    },
                    Request::Notice {
                        node: node.clone(),
                        deadline_millis: 600_000,
                        reason: reason(),
                    },
                    Request::Cancel { node: node.clone() },
                ] {
                    let answer = call(&line, request.clone()).await;
                    assert_eq!(answer.is_ok(), gives, "{role}: {request:?}: {answer:?}");
                    assert!(gives || !allows(&answer), "{role}: {request:?}: {answer:?}");
                }
                let administrates = [
                    Request::Decommission { node, reason: reason() },
                    Request::Fsck,
                    Request::RevokeTokens { tokens: TokenSelector::Id(TokenId(7)), until: None },
                ];
                for request in administrates {
                    let answer = call(&line, request.clone()).await;
                    assert!(!allows(&answer), "{role}: {request:?}: {answer:?}");
                }
            }
        }
    });
}

#[test]
fn datanode_stores_blocks_of_servers_and_takes_orders_of_managers_alone() {
    let guarded = Guarded::start(1);
    let datanode = &guarded.cluster.datanodes[0].address;
    block_on(async {
        let client = guarded.client(&[]).await;
        let block = stored(&client, "/a").await;
        let begin = bytes_of(1, 9);
        let order = encode_body(&Order::ListBlocks { after: BlockId(0), limit: 1 });
        // It has the block at this epoch: a caller that may store it gets another refusal.
        let mut store = Header::new(Op::Store, 0);
        (store.block, store.epoch, store.length, store.flags) = (block.block, block.epoch, 9, 1);
        let mut write = store;
        (write.op, write.offset) = (Op::Write, 1 << 20);
        for (flags, reads, stores, orders) in [
            (["--role", "datanode"], true, true, false),
            (["--role", "manager"], true, true, true),
            (["--rights", "read"], true, false, false),
            (["--rights", "metrics"], false, false, false),
            (["--rights", "admin"], false, false, false),
        ] {
            let line = line(&guarded, datanode, &flags).await;
            let read = read(&line, &block).await;
            let is_as_allowed = match &read {
                Ok(bytes) => reads && bytes[..] == begin[..],
                Err(_) => !reads && !allows(&read),
            };
            assert!(is_as_allowed, "{flags:?}: {read:?}");
            assert!(!allows(&line.call(write, vec![1; 9]).await), "{flags:?} writes");
            let ordered = line.call(Header::new(Op::Order, 0), order.clone()).await;
            assert_eq!(ordered.is_ok(), orders, "{flags:?}: {ordered:?}");
            assert!(orders || !allows(&ordered), "{flags:?}: {ordered:?}");
            let stored = line.call(store, vec![1; 9]).await;
            assert!(stored.is_err() && allows(&stored) == stores, "{flags:?}: {stored:?}");
        }
        let kept = client.get(&path("/a")).await.expect("it is there");
        assert!(kept == bytes_of(1, 1 << 20), "it was changed");
    });
}

#[test]
fn value_in_a_table_is_read_with_the_right_to_read_and_set_with_the_right_to_write() {
    let guarded = Guarded::start(1);
    let table = path("/tables/t");
    block_on(async {
        let all = guarded.client(&[]).await;
        all.make_table(&table).await.expect("made");
        all.put_value(&table, "key", "value".into()).await.expect("set");
        for (flags, reads, writes) in [
            (["--rights", "read"], true, false),
            (["--rights", "write"], false, true),
            (["--rights", "metrics"], false, false),
            (["--rights", "admin"], false, false),
            (["--subtree", "/tables/t"], true, true),
            (["--subtree", "/tables/u"], false, false),
        ] {
            let client = guarded.client(&flags).await;
            let read = client.get_value(&table, "key").await;
            let is_as_allowed = match &read {
                Ok(value) => reads && value == "value",
                Err(error) => !reads && is_forbidden(error),
            };
            assert!(is_as_allowed, "{flags:?}: {read:?}");
            let set = client.put_value(&table, "key", "value".into()).await;
            let is_as_allowed = match &set {
                Ok(_) => writes,
                Err(error) => !writes && is_forbidden(error),
            };
            assert!(is_as_allowed, "{flags:?}: {set:?}");
        }
    });
    // The command has to look up that it is a table: the message names what that takes.
    let file = text(guarded.place.path().join("file"));
    std::fs::write(&file, "another").expect("written");
    let words = ["fs", "put", &file, "/tables/t/another"];
    let writer = guarded.token(&["--rights", "write"]);
    is_refused(&guarded, &writer, &words, "has no right to read");
    is_refused(&guarded, &writer, &words, "a token with read and write");
    operate(&guarded, &writer, &["fs", "put", &file, "/tables/file"]);
    let stored = ["fs", "put", &file, "/tables/file"];
    is_refused(&guarded, &writer, &stored, "/tables/file exists");
    let reader = guarded.token(&["--rights", "read"]);
    for path in ["/tables/t/another", "/tables/another"] {
        let words = ["fs", "put", &file, path];
        is_refused(&guarded, &reader, &words, "has no right to write");
        is_refused(&guarded, &reader, &words, "--token-file FILE");
    }
    is_refused(&guarded, &writer, &["fs", "cat", "/tables/t/key"], "has no right to read");
    let both = guarded.token(&["--rights", "read,write"]);
    operate(&guarded, &both, &words);
    assert_eq!(operate(&guarded, &both, &["fs", "cat", "/tables/t/another"]), "another");
}

#[test]
fn all_paths_of_a_request_lie_in_the_token_s_subtree() {
    let guarded = Guarded::start(1);
    let tenant = guarded.token(&[]);
    for name in ["/x/a", "/y/a"] {
        operate(&guarded, &tenant, &["fs", "put", "-p", "/proc/version", name]);
    }
    let own = guarded.token(&["--subtree", "/x"]);
    for words in [
        &["fs", "mv", "/x/a", "/y/b"][..],
        &["fs", "mv", "/y/a", "/x/b"],
        &["fs", "concat", "/x/a", "/y/a", "/x/whole"],
        &["fs", "concat", "/x/a", "/y/whole"],
        &["fs", "rm", "/y/a"],
    ] {
        is_refused(&guarded, &own, words, "only below /x");
    }
    for directory in ["/x", "/y"] {
        assert_eq!(operate(&guarded, &tenant, &["fs", "ls", directory]), "a\n", "{directory}");
    }
    // The missing directories above a subtree are made, and not shown.
    let deep = guarded.token(&["--subtree", "/deep/own"]);
    operate(&guarded, &deep, &["fs", "put", "-p", "/proc/version", "/deep/own/a"]);
    for words in [
        &["fs", "ls", "/deep"][..],
        &["fs", "stat", "/deep"],
        &["fs", "mkdir", "-p", "/deep/other"],
    ] {
        is_refused(&guarded, &deep, words, "only below /deep/own");
    }
}

#[test]
fn writer_joins_no_parts_without_the_right_to_read_and_renames_and_deletes() {
    let guarded = Guarded::start(1);
    let writer = guarded.token(&["--rights", "write"]);
    operate(&guarded, &writer, &["fs", "put", "-p", "/proc/version", "/d/part"]);
    let words = ["fs", "concat", "/d/part", "/d/whole"];
    is_refused(&guarded, &writer, &words, "has no right to read");
    block_on(async {
        let client = guarded.cluster.client_of(guarded.config(&writer)).await;
        client.rename(&path("/d/part"), &path("/d/renamed"), false).await.expect("it may write");
    });
    let tenant = guarded.token(&[]);
    assert_eq!(operate(&guarded, &tenant, &["fs", "ls", "/d"]), "renamed\n");
    operate(&guarded, &writer, &["fs", "rm", "/d/renamed"]);
    assert_eq!(operate(&guarded, &tenant, &["fs", "ls", "/d"]), "");
}

#[test]
fn object_of_another_owner_looks_like_one_that_is_gone_and_one_that_is_still_to_come() {
    let guarded = Guarded::start(1);
    block_on(async {
        let all = guarded.client(&[]).await;
        let mut numbers = Vec::new();
        for name in ["/x/a", "/y/a", "/y/gone"] {
            stored(&all, name).await;
            numbers.push(all.stat(&path(name)).await.expect("it is there").object);
        }
        all.delete(&path("/y/gone"), false).await.expect("deleted");
        let namenode = &guarded.cluster.namenode.address;
        let line = line(&guarded, namenode, &["--subtree", "/x"]).await;
        let look = |object| Request::LookupObject { object, offset: 0, bytes: 1 };
        assert!(call(&line, look(numbers[0])).await.is_ok(), "it is its own");
        for object in [numbers[1], numbers[2], ObjectId(1 << 40)] {
            for request in [look(object), Request::Abort { object, lease: LeaseId(1) }] {
                let answer = call(&line, request.clone()).await;
                let is_gone = matches!(
                    &answer,
                    Err(Refusal::ObjectGone { object: named }) if *named == object
                );
                assert!(is_gone, "{request:?}: {answer:?}");
            }
        }
    });
}

#[test]
fn right_to_administrate_reads_and_writes_nothing_and_holds_at_the_root_alone() {
    let guarded = Guarded::start(2);
    let tenant = guarded.token(&[]);
    operate(&guarded, &tenant, &["fs", "put", "/proc/version", "/a"]);
    let admin = guarded.token(&["--rights", "admin"]);
    for words in [
        &["fs", "ls", "/"][..],
        &["fs", "cat", "/a"],
        &["fs", "put", "/proc/version", "/b"],
        &["fs", "rm", "/a"],
        &["job", "new", "/job"],
    ] {
        is_refused(&guarded, &admin, words, "has no right to");
    }
    let scoped = guarded.token(&["--rights", "admin", "--subtree", "/x"]);
    for words in [
        &["fsck"][..],
        &["node", "recommend", "n0", "--reason", "a test"],
        &["node", "notice", "n0", "--deadline", "200s", "--yes"],
        &["node", "cancel", "n0"],
    ] {
        is_refused(&guarded, &scoped, words, "not allowed");
        operate(&guarded, &admin, words);
    }
}

#[test]
fn session_of_a_subtree_reads_what_is_renamed_out_of_it_until_its_connection_ends() {
    let guarded = Guarded::start(1);
    let datanode = &guarded.cluster.datanodes[0].address;
    block_on(async {
        let all = guarded.client(&[]).await;
        let block = stored(&all, "/x/a").await;
        stored(&all, "/y/b").await;
        let token = guarded.token(&["--subtree", "/x"]);
        let session = async || {
            let line = Line::to(&guarded, datanode, &token).await;
            line.unwrap_or_else(|error| panic!("{error}"))
        };
        let (has_read, has_not) = (session().await, session().await);
        assert!(read(&has_read, &block).await.is_ok());
        all.rename(&path("/x/a"), &path("/y/a"), false).await.expect("renamed");
        assert!(read(&has_read, &block).await.is_ok(), "it has the reply of before");
        for line in [&has_not, &session().await] {
            assert!(!allows(&read(line, &block).await), "it is another owner's now");
        }
    });
}

#[test]
fn open_pages_show_no_names_and_the_filter_of_a_log_needs_the_right_to_administrate() {
    let guarded = Guarded::start(1);
    let tenant = guarded.token(&["--rights", "read,write,metrics"]);
    operate(&guarded, &tenant, &["fs", "put", "/proc/version", "/tenant-7-object"]);
    operate(&guarded, &tenant, &["job", "new", "/tenant-7-job", "--lease", "1h"]);
    let namenode = &guarded.cluster.namenode.http_address;
    let datanode = &guarded.cluster.datanodes[0].http_address;
    let change = ("PUT", "/v1/log");
    block_on(async {
        for (address, page) in [
            (namenode, "/"),
            (namenode, "/console/app.js"),
            (namenode, "/healthz"),
            (datanode, "/"),
        ] {
            let answer = http::shown(address, "GET", page, None).await;
            assert!(answer.starts_with("HTTP/1.1 200"), "{page}: {answer}");
            assert!(!answer.contains("tenant-7"), "{page}: {answer}");
        }
        let body = r#"{"filter":"info"}"#;
        for address in [namenode, datanode] {
            for (token, status) in [
                (None, "401"),
                (Some(tenant.clone()), "403"),
                (Some(guarded.token(&["--role", "datanode"])), "403"),
                (Some(guarded.token(&["--role", "manager"])), "403"),
                (Some(guarded.token(&["--rights", "admin", "--subtree", "/x"])), "403"),
                (Some(guarded.token(&["--rights", "admin"])), "200"),
            ] {
                let shown = token.as_ref().map(Token::reveal);
                let answer = http::send(address, change, shown, body).await;
                assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
            }
        }
    });
}

#[test]
fn revocations_beyond_their_number_are_rejected_until_one_is_undone() {
    const OTHER: u64 = 1 << 40;
    let guarded = Guarded::start(0);
    let (until, later) = (Some(unix_seconds() + 3600), Some(unix_seconds() + 7200));
    let revoke = |id: u64, until| {
        let tokens = TokenSelector::Id(TokenId(id));
        Request::RevokeTokens { tokens, until }
    };
    block_on(async {
        let namenode = &guarded.cluster.namenode.address;
        let line = line(&guarded, namenode, &["--rights", "admin"]).await;
        let numbers: Vec<u64> = (0..REVOCATIONS_MAX as u64).collect();
        for numbers in numbers.chunks(256) {
            let requests: Vec<Request> = numbers.iter().map(|id| revoke(*id, until)).collect();
            let answers = line.call(Header::new(Op::Meta, 0), encode_body(&requests)).await;
            let answers: Vec<Result<Reply, Refusal>> =
                decode_body(&answers.expect("answered")).expect("a list");
            assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        }
        let beyond = call(&line, revoke(OTHER, until)).await;
        assert!(matches!(beyond, Err(Refusal::BadRequest { .. })), "{beyond:?}");
        // One that is kept may last longer: it takes no other place.
        assert!(call(&line, revoke(0, later)).await.is_ok());
        assert!(call(&line, revoke(0, None)).await.is_ok());
        assert!(call(&line, revoke(OTHER, until)).await.is_ok());
    });
}

#[test]
fn token_is_neither_wider_nor_longer_than_what_it_may_be() {
    let guarded = Guarded::start(0);
    for (flags, why) in [
        (&["--expires", "366d"][..], "365 days at most"),
        (&["--role", "datanode", "--subtree", "/x"][..], "leave --subtree out"),
        (&["--role", "manager", "--rights", "read"][..], "leave --rights out"),
    ] {
        let mut command = sanderling();
        command.args(["token", "new", "--cluster", "any", "--secret-file", &guarded.secret]);
        let refused = run(command.args(flags));
        assert!(refused.code == 2 && refused.stderr.contains(why), "{flags:?}: {refused}");
    }
    let hour = guarded.token(&["--subtree", "/x", "--rights", "read", "--expires", "1h"]);
    let ends = unix_seconds() + 3600;
    let mint = |subtree: &str, rights: &str| {
        let words = ["token", "mint", "--subtree", subtree, "--rights", rights];
        guarded.cli(Some(&hour), &[&words[..], &["--expires", "2h", "--json"]].concat())
    };
    for (subtree, rights) in [("/x", "read,write"), ("/x", "admin"), ("/y", "read"), ("/", "read")]
    {
        let refused = mint(subtree, rights);
        assert!(refused.code == 1 && refused.stderr.contains("not allowed"), "{refused}");
    }
    let minted = mint("/x/below", "read");
    assert_eq!(minted.code, 0, "{minted}");
    let minted: serde_json::Value = serde_json::from_str(&minted.stdout).expect("JSON");
    let until = minted["expires_at_unix_seconds"].as_u64().expect("a time");
    assert!(until <= ends, "it lasts {} s longer than its own", until - ends);
}
