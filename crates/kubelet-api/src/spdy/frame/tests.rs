use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn all(decoder: &mut Decoder, input: &mut BytesMut) -> Result<Vec<Frame>, FrameError> {
    let mut frames = Vec::new();
    while let Some(frame) = decoder.decode(input)? {
        frames.push(frame);
    }
    Ok(frames)
}

/// Pieces of one data frame are one frame, however the bytes were cut.
fn joined(frames: Vec<Frame>) -> Vec<Frame> {
    let mut whole: Vec<Frame> = Vec::new();
    let mut open = false;
    for frame in frames {
        match (whole.last_mut(), frame) {
            (
                Some(Frame::Data { id, fin, bytes }),
                Frame::Data {
                    id: next,
                    fin: end,
                    bytes: more,
                },
            ) if open && *id == next && !*fin => {
                *bytes = [bytes.as_ref(), more.as_ref()].concat().into();
                *fin = end;
            }
            (_, frame) => {
                open = matches!(frame, Frame::Data { .. });
                whole.push(frame);
            }
        }
    }
    whole
}

/// What the SPDY library of kube-apiserver and kubectl wrote when asked for the streams of an exec and of a forwarded port.
const CAPTURED: &str = "\
80030001000000290000000100000000000078f9e3c6a7c26260606004a7b392a2d4c45c6851c29a0a0a6800000000ffff80\
0300010000001700000003000000000000c22e555c92929907000000ffff000000030000000668656c6c6f0a000000030100\
0000800300010000002c00000005000000000000022555060606ce2248ac6682523ba3016e73580af28bc039c9c2c0c20000\
0000ffff0000000501000000800300060000000400000001";

#[test]
fn what_the_peers_library_writes_is_read() {
    let bytes = CAPTURED.as_bytes().chunks(2);
    let bytes = bytes.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap());
    let mut input: BytesMut = bytes.collect();
    let frames = all(&mut Decoder::new(), &mut input).unwrap();
    let kinds: Vec<_> = frames
        .iter()
        .filter_map(|frame| match frame {
            Frame::SynStream { id, headers, .. } => Some((*id, headers.get("streamtype").unwrap())),
            _ => None,
        })
        .collect();
    assert_eq!(kinds, [(1, "error"), (3, "stdin"), (5, "error")]);
    let Some(Frame::SynStream { headers, .. }) = frames.get(4) else {
        panic!("{frames:?}");
    };
    assert_eq!(
        (headers.get("port"), headers.get("requestid")),
        (Some("8080"), Some("0"))
    );
    let data = |id, fin, bytes: &'static str| Frame::Data {
        id,
        fin,
        bytes: Bytes::from_static(bytes.as_bytes()),
    };
    assert_eq!(frames[2..4], [data(3, false, "hello\n"), data(3, true, "")]);
    assert_eq!(frames[5..], [data(5, true, ""), Frame::Ping { id: 1 }]);
}

/// Frames as a stock kubelet and apiserver exchange them, byte for byte.
#[test]
fn plain_frames_have_the_bytes_the_standard_gives() {
    let cases: [(&[u8], Frame); 6] = [
        (&[0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 1], Frame::Ping { id: 1 }),
        (
            &[0x80, 3, 0, 3, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 5],
            Frame::RstStream {
                id: 1,
                status: rst::CANCEL,
            },
        ),
        (
            &[0x80, 3, 0, 7, 0, 0, 0, 8, 0, 0, 0, 7, 0, 0, 0, 0],
            Frame::GoAway { last: 7, status: 0 },
        ),
        (
            &[0, 0, 0, 5, 1, 0, 0, 0],
            Frame::Data {
                id: 5,
                fin: true,
                bytes: Bytes::new(),
            },
        ),
        (
            &[0, 0, 0, 3, 0, 0, 0, 2, b'h', b'i'],
            Frame::Data {
                id: 3,
                fin: false,
                bytes: Bytes::from_static(b"hi"),
            },
        ),
        (&[0x80, 3, 0, 4, 0, 0, 0, 0], Frame::Ignored { kind: 4 }),
    ];
    for (bytes, frame) in cases {
        let mut input = BytesMut::from(bytes);
        let found = all(&mut Decoder::new(), &mut input).unwrap();
        assert_eq!(found, std::slice::from_ref(&frame));
        let mut out = BytesMut::new();
        Encoder::new().encode(&frame, &mut out).unwrap();
        assert_eq!(out, bytes);
    }
}

/// A SYN_REPLY with the stored block that a real apiserver accepts.
#[test]
fn a_reply_without_dictionary_is_read() {
    let mut input = BytesMut::from(
        &[
            0x80, 3, 0, 2, 0, 0, 0, 20, 0, 0, 0, 1, 0x78, 1, 0, 4, 0, 0xfb, 0xff, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff,
        ][..],
    );
    let reply = Frame::SynReply {
        id: 1,
        fin: false,
        headers: Headers::default(),
    };
    assert_eq!(all(&mut Decoder::new(), &mut input).unwrap(), [reply]);
}

#[test]
fn what_is_not_spdy_is_refused() {
    let refused = |bytes: &[u8]| all(&mut Decoder::new(), &mut BytesMut::from(bytes)).unwrap_err();
    let found = refused(&[0x80, 2, 0, 6, 0, 0, 0, 4, 0, 0, 0, 1]);
    assert_eq!(found, FrameError::Version(2));
    let found = refused(&[0x80, 3, 0, 1, 0, 0xff, 0xff, 0xff]);
    assert_eq!(found, FrameError::TooLarge(0xff_ffff));
    assert_eq!(refused(&[0, 0, 0, 0, 0, 0, 0, 1, 1]), FrameError::StreamZero);
    let found = refused(&[0x80, 3, 0, 3, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 5]);
    assert_eq!(found, FrameError::StreamZero);
    assert_eq!(refused(&[0x80, 3, 0, 6, 0, 0, 0, 1, 7]), FrameError::Short(6));
    let found = refused(&[0x80, 3, 0, 1, 0, 0, 0, 14, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]);
    assert_eq!(found, FrameError::Headers(HeaderError::Corrupt));
}

#[test]
fn a_huge_data_frame_is_handed_on_in_pieces() {
    let mut decoder = Decoder::new();
    let mut input = BytesMut::from(&[0, 0, 0, 1, 1, 0xff, 0xff, 0xff][..]);
    let mut left = 0x00ff_ffff;
    let chunk = vec![7; 50_000];
    assert_eq!(decoder.decode(&mut input).unwrap(), None);
    while left > 0 {
        assert!(!decoder.between_frames());
        let step = left.min(chunk.len());
        input.extend_from_slice(&chunk[..step]);
        left -= step;
        let mut got = 0;
        while let Some(Frame::Data { id: 1, fin, bytes }) = decoder.decode(&mut input).unwrap() {
            assert!(bytes.len() <= MAX_PIECE);
            got += bytes.len();
            assert_eq!(fin, left == 0 && got == step);
        }
        assert_eq!(got, step);
    }
    assert!(decoder.between_frames());
}

fn frames() -> impl Strategy<Value = Frame> {
    let id = 1..0x7fff_ffff_u32;
    let headers = vec(("[a-z]{0,12}", "[ -~]{0,40}"), 0..4).prop_map(Headers::new);
    prop_oneof![
        (id.clone(), any::<bool>(), headers.clone()).prop_map(|(id, fin, headers)| Frame::SynStream {
            id,
            fin,
            headers
        }),
        (id.clone(), any::<bool>(), headers.clone()).prop_map(|(id, fin, headers)| Frame::SynReply {
            id,
            fin,
            headers
        }),
        (id.clone(), any::<bool>(), headers).prop_map(|(id, fin, headers)| Frame::Headers { id, fin, headers }),
        (id.clone(), any::<u32>()).prop_map(|(id, status)| Frame::RstStream { id, status }),
        any::<u32>().prop_map(|id| Frame::Ping { id }),
        (id.clone(), any::<u32>()).prop_map(|(last, status)| Frame::GoAway { last, status }),
        (id, vec(any::<u8>(), 0..300)).prop_map(|(id, bytes)| Frame::Data {
            id,
            fin: true,
            bytes: bytes.into()
        }),
    ]
}

proptest! {
    #[test]
    fn any_cut_of_the_bytes_gives_the_same_frames(frames in vec(frames(), 0..12), cuts in vec(1..40_usize, 1..50)) {
        let (mut encoder, mut bytes) = (Encoder::new(), BytesMut::new());
        for frame in &frames {
            encoder.encode(frame, &mut bytes).unwrap();
        }
        let (mut decoder, mut input, mut got) = (Decoder::new(), BytesMut::new(), Vec::new());
        let mut cut = cuts.iter().cycle();
        while !bytes.is_empty() {
            let step = bytes.len().min(*cut.next().unwrap());
            input.extend_from_slice(&bytes.split_to(step));
            got.extend(all(&mut decoder, &mut input).unwrap());
        }
        prop_assert!(decoder.between_frames());
        prop_assert_eq!(joined(got), frames);
    }

    #[test]
    fn no_bytes_make_it_panic_or_hoard(bytes in vec(any::<u8>(), 0..4096), valid in vec(frames(), 0..4), spot in any::<prop::sample::Index>(), flip in 1..=255_u8) {
        let _ = all(&mut Decoder::new(), &mut BytesMut::from(&bytes[..]));
        let (mut encoder, mut edited) = (Encoder::new(), BytesMut::new());
        for frame in &valid {
            encoder.encode(frame, &mut edited).unwrap();
        }
        if !edited.is_empty() {
            let spot = spot.index(edited.len());
            edited[spot] ^= flip;
            let mut decoder = Decoder::new();
            let mut total = 0;
            let length = edited.len();
            if let Ok(frames) = all(&mut decoder, &mut edited) {
                for frame in frames {
                    if let Frame::Data { bytes, .. } = frame {
                        total += bytes.len();
                    }
                }
            }
            prop_assert!(total <= length);
        }
    }
}
