//! Golden bytes of frames, and what is not a frame.

use super::*;

fn header() -> Header {
    Header {
        op: Op::Write,
        status: 0,
        flags: 1,
        request: 0x0102_0304_0506_0708,
        block: BlockId(9),
        epoch: Epoch(3),
        length: 4096,
        offset: 1 << 33,
        checksum: 0xdead_beef,
        body_bytes: 4096,
    }
}

#[test]
fn header_has_golden_bytes() {
    #[rustfmt::skip]
    let golden: [u8; HEADER_BYTES] = [
        0x44, 0x53, 3, 6, 0, 0, 1, 0,
        8, 7, 6, 5, 4, 3, 2, 1,
        9, 0, 0, 0, 0, 0, 0, 0,
        3, 0, 0, 0, 0, 0x10, 0, 0,
        0, 0, 0, 0, 2, 0, 0, 0,
        0xef, 0xbe, 0xad, 0xde, 0, 0x10, 0, 0,
    ];
    assert_eq!(header().encode(), golden);
    assert_eq!(Header::decode(&golden).unwrap(), header());
    assert_eq!(header().tier(), Some(Tier::Dram));
}

#[test]
fn every_operation_is_read_back_by_its_number() {
    let all: Vec<Op> = (0..=u8::MAX).filter_map(Op::from_wire).collect();
    let numbers: Vec<u8> = all.iter().map(|op| *op as u8).collect();
    assert_eq!(numbers, (1..=Op::LAST as u8).collect::<Vec<u8>>());
    for op in all {
        let sent = Header { op, ..header() };
        assert_eq!(Header::decode(&sent.encode()).unwrap(), sent);
    }
}

#[test]
fn report_of_held_answers_has_these_bytes() {
    #[rustfmt::skip]
    let golden = [
        0x44, 0x53, 3, 4, 0, 0, 0, 4,
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        0, 0, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0,
    ];
    assert_eq!(Header::held().encode(), golden);
    let numbers = [7, u64::MAX - 1];
    let mut body = held_body(numbers.into_iter());
    assert_eq!(body[..8], [7, 0, 0, 0, 0, 0, 0, 0]);
    body.push(9);
    assert_eq!(held_requests(&body).collect::<Vec<_>>(), numbers);
    assert!(Header::held().is_held_report());
    let answer = Header { flags: IS_HELD, ..header().reply() };
    assert!(!answer.is_held_report(), "an answer has a request");
}

#[test]
fn what_is_not_a_frame_is_refused_before_its_body_is_read() {
    let change = |at: usize, value: u8| {
        let mut bytes = header().encode();
        bytes[at] = value;
        Header::decode(&bytes).unwrap_err()
    };
    assert!(matches!(change(0, 0x47), FrameError::Magic(_)));
    assert_eq!(change(2, 9), FrameError::Version { theirs: 9 });
    assert_eq!(change(3, 200), FrameError::Op(200));
    assert!(matches!(change(47, 0xff), FrameError::TooLarge(_)));
    assert_eq!(change(2, 9).refusal(), Refusal::UnknownVersion { ours: VERSION, theirs: 9 });
}

#[test]
fn ranges_are_read_back_as_written() {
    let range = RangeRequest { block: BlockId(5), epoch: Epoch(2), offset: 7, length: 11 };
    let mut body = Vec::new();
    range.encode(&mut body);
    range.encode(&mut body);
    assert_eq!(RangeRequest::decode_all(&body).unwrap(), [range, range]);
    assert!(RangeRequest::decode_all(&body[1..]).is_err());

    let reply = RangeReply { status: 0, length: 3, checksum: 77 };
    let mut body = Vec::new();
    reply.encode(&mut body);
    body.extend_from_slice(b"abc");
    assert_eq!(RangeReply::decode_all(&body, 1).unwrap(), [reply]);
    assert!(RangeReply::decode_all(&body[..17], 1).is_err());
    assert!(RangeReply::decode_all(&body, 2).is_err());
}

#[test]
fn trailing_bytes_of_a_body_are_refused() {
    let mut body = encode_body(&vec![1u32, 2]);
    assert_eq!(decode_body::<Vec<u32>>(&body).unwrap(), [1, 2]);
    body.push(0);
    assert!(matches!(decode_body::<Vec<u32>>(&body), Err(Refusal::BadFrame { .. })));
    assert!(matches!(decode_body::<Vec<u32>>(&[9]), Err(Refusal::BadFrame { .. })));
}

#[test]
fn list_of_encoded_messages_has_the_bytes_of_the_list() {
    for count in [0, 1, 127, 128, 300] {
        let list: Vec<Option<u64>> = (0..count).map(Some).collect();
        let items: Vec<Vec<u8>> = list.iter().map(encode_body).collect();
        assert_eq!(encode_list(items.iter().map(Vec::as_slice)), encode_body(&list));
    }
}

#[test]
fn small_body_of_large_lists_takes_only_the_memory_of_a_message() {
    // One byte on the wire, more than a hundred in memory.
    type Element = Option<[u64; 16]>;
    let body_of = |count: usize| encode_body(&vec![None::<[u64; 16]>; count]);
    let element_bytes = size_of::<Element>();
    let fits = (16 << 20) / element_bytes;
    let decoded = decode_body::<Vec<Element>>(&body_of(fits)).map(|list| list.len());
    assert_eq!(decoded, Ok(fits));
    // Four bytes for each byte of the body, and one element that has no room.
    let body = body_of((16 << 20) / (element_bytes - 4) + 1);
    let bytes_max = (16 << 20) + 4 * body.len();
    let why = format!("the message takes more than {bytes_max} bytes of memory");
    assert_eq!(decode_body::<Vec<Element>>(&body), Err(Refusal::BadFrame { why }));
}
