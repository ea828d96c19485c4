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

/// What a stock apiserver sends first on exec, as captured: SYN_STREAM 1 with `streamtype: error`.
#[test]
fn the_first_frame_of_a_real_exec_is_read() {
    let mut encoder = Encoder::new();
    let mut ours = BytesMut::new();
    let frame = Frame::SynStream {
        id: 1,
        fin: false,
        headers: Headers::new([("streamtype", "error".to_owned())]),
    };
    encoder.encode(&frame, &mut ours).unwrap();
    assert_eq!(&ours[..4], [0x80, 3, 0, 1]);
    assert_eq!(&ours[8..18], [0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(all(&mut Decoder::new(), &mut ours).unwrap(), [frame]);
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
        assert_eq!(all(&mut Decoder::new(), &mut input).unwrap(), [frame.clone()]);
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
    assert_eq!(
        refused(&[0x80, 2, 0, 6, 0, 0, 0, 4, 0, 0, 0, 1]),
        FrameError::Version(2)
    );
    assert_eq!(
        refused(&[0x80, 3, 0, 1, 0, 0xff, 0xff, 0xff]),
        FrameError::TooLarge(0xff_ffff)
    );
    assert_eq!(refused(&[0, 0, 0, 0, 0, 0, 0, 1, 1]), FrameError::StreamZero);
    assert_eq!(
        refused(&[0x80, 3, 0, 3, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 5]),
        FrameError::StreamZero
    );
    assert_eq!(refused(&[0x80, 3, 0, 6, 0, 0, 0, 1, 7]), FrameError::Short(6));
    assert_eq!(
        refused(&[0x80, 3, 0, 1, 0, 0, 0, 14, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]),
        FrameError::Headers(HeaderError::Corrupt)
    );
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
    let headers = vec(("[a-z]{0,12}", "[ -~]{0,40}"), 0..4).prop_map(Headers);
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
