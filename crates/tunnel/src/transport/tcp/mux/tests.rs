use super::datagrams::DATAGRAM_BYTES;
use super::*;
use proptest::prelude::*;

fn frames() -> impl Strategy<Value = Vec<Frame>> {
    let frame = (0..11u8, 0..6u32, 0..70_000u64).prop_map(|(kind, id, number)| match kind {
        0..=2 => Frame::Data(id, vec![0; number as usize % 9000 + 1].into()),
        3 => Frame::Finish(id),
        4 => Frame::Received(id),
        5 => Frame::Reset(id, 1),
        6 => Frame::Stop(id, 1),
        7 => Frame::StreamCredit(id, number * 100),
        8 => Frame::Credit(number * 100),
        9 => Frame::Streams(number as u32),
        _ => Frame::Datagram(vec![0; number as usize % 3000 + 1].into()),
    });
    proptest::collection::vec(frame, 0..60)
}

proptest! {
    /// A peer that sends arbitrary frames makes this end hold at most its credit, and causes no
    /// panic.
    #[test]
    fn arbitrary_frames_never_make_the_receiver_hold_more_than_its_credit(frames in frames(), drop_at in 0..60usize) {
        let (_, mut server) = pair();
        for (index, frame) in frames.iter().enumerate() {
            let mut bytes = BytesMut::new();
            frame.encode(&mut bytes);
            if server.receive(&mut bytes).is_err() {
                break;
            }
            if index == drop_at {
                while let Ok(Some(id)) = server.accept() {
                    let _ = server.write(id, &mut Bytes::from_static(&[1; 5000]));
                    server.drop_sending(id);
                    server.drop_receiving(id);
                }
            }
            server.fill(&mut BytesMut::new(), 16_384);
            server.take_events();
            prop_assert!(server.unread() <= FIRST_CREDIT + 9000);
            prop_assert!(server.held() <= 2 * FIRST_CREDIT + 2 * DATAGRAM_BYTES as u64);
        }
    }
}

/// Passes all frames between the two ends until neither end has a frame to send.
fn exchange(a: &mut Mux, b: &mut Mux) -> Result<(), &'static str> {
    loop {
        let mut moved = false;
        let mut pass = |from: &mut Mux, to: &mut Mux| {
            let mut bytes = BytesMut::new();
            from.fill(&mut bytes, 64 * 1024);
            moved |= !bytes.is_empty();
            to.receive(&mut bytes)
        };
        pass(a, b)?;
        pass(b, a)?;
        if !moved {
            return Ok(());
        }
    }
}

fn pair() -> (Mux, Mux) {
    let (mut client, mut server) = (Mux::new(false, 1024), Mux::new(true, 1024));
    exchange(&mut client, &mut server).unwrap();
    (client, server)
}

#[test]
fn the_first_frame_and_no_later_frame_wakes_a_client_that_waits_for_admission() {
    let (mut client, mut server) = (Mux::new(false, 1024), Mux::new(true, 1024));
    let mut events = |server: &mut Mux| {
        let mut bytes = BytesMut::new();
        server.fill(&mut bytes, 64 * 1024);
        assert!(!bytes.is_empty());
        client.receive(&mut bytes).unwrap();
        client.take_events()
    };
    assert!(events(&mut server).contains(&Event::Connection));
    server.ping(0);
    assert!(!events(&mut server).contains(&Event::Connection));
}

fn all(mux: &mut Mux, id: u32) -> Vec<u8> {
    let mut out = Vec::new();
    while let Ok(Readable::Some) = mux.read(id, usize::MAX, &mut out) {}
    let bytes: Vec<u8> = out.iter().flat_map(|(_, bytes)| bytes.to_vec()).collect();
    mux.consume(id, bytes.len() as u64);
    bytes
}

#[test]
fn both_directions_of_a_stream_end_separately_and_the_stream_is_forgotten() {
    let (mut client, mut server) = pair();
    let id = client.open().unwrap().unwrap();
    client.write(id, &mut Bytes::from_static(b"question")).unwrap();
    client.finish(id);
    exchange(&mut client, &mut server).unwrap();
    assert_eq!(server.accept().unwrap(), Some(id));
    assert_eq!(all(&mut server, id), b"question");
    assert_eq!(server.read(id, 1, &mut Vec::new()).unwrap(), Readable::Ended);
    assert_eq!(client.delivered(id), Ok(true));
    assert_eq!(client.read(id, 1, &mut Vec::new()).unwrap(), Readable::Later);
    server.write(id, &mut Bytes::from_static(b"answer")).unwrap();
    server.finish(id);
    exchange(&mut client, &mut server).unwrap();
    assert_eq!(all(&mut client, id), b"answer");
    for mux in [&mut client, &mut server] {
        mux.drop_sending(id);
        mux.drop_receiving(id);
    }
    exchange(&mut client, &mut server).unwrap();
    assert_eq!((client.streams.len(), server.streams.len()), (0, 0));
    assert_eq!((client.held(), server.held()), (0, 0));
}

#[test]
fn an_unread_stream_delays_no_other_stream_and_reading_it_grants_credit() {
    let (mut client, mut server) = pair();
    server.set_receive_window(4 * FIRST_CREDIT);
    client.set_send_window(8 * FIRST_CREDIT);
    exchange(&mut client, &mut server).unwrap();
    let (slow, fast) = (client.open().unwrap().unwrap(), client.open().unwrap().unwrap());
    let mut sent = 0;
    for _ in 0..20 {
        let mut bytes = Bytes::from(vec![7; 100_000]);
        client.write(slow, &mut bytes).unwrap();
        sent += 100_000 - bytes.len();
        exchange(&mut client, &mut server).unwrap();
    }
    assert_eq!(sent as u64, FIRST_CREDIT);
    assert_eq!(server.unread(), FIRST_CREDIT);
    client.write(fast, &mut Bytes::from_static(b"soon")).unwrap();
    exchange(&mut client, &mut server).unwrap();
    assert_eq!(all(&mut server, fast), b"soon");
    assert_eq!(all(&mut server, slow).len(), sent);
    exchange(&mut client, &mut server).unwrap();
    let mut bytes = Bytes::from_static(b"more");
    client.write(slow, &mut bytes).unwrap();
    assert!(bytes.is_empty() && server.unread() == 0);
}

#[test]
fn resets_and_stops_reach_the_other_end_and_discard_queued_bytes() {
    let (mut client, mut server) = pair();
    let id = client.open().unwrap().unwrap();
    client.write(id, &mut Bytes::from_static(b"lost")).unwrap();
    client.reset(id, 2);
    exchange(&mut client, &mut server).unwrap();
    let refused = Err(StreamError::GivenUp(2));
    assert_eq!(server.read(id, 1, &mut Vec::new()), refused);
    server.stop(id, 0);
    client.stop(id, 1);
    exchange(&mut client, &mut server).unwrap();
    let written = server.write(id, &mut Bytes::from_static(b"x"));
    assert_eq!(written, Err(StreamError::GivenUp(1)));
    for mux in [&mut client, &mut server] {
        mux.drop_sending(id);
        mux.drop_receiving(id);
    }
    exchange(&mut client, &mut server).unwrap();
    assert_eq!((client.streams.len(), server.streams.len()), (0, 0));
    assert_eq!((client.unread(), server.unread()), (0, 0));
}

#[test]
fn bytes_discarded_by_a_reset_are_consumed_once() {
    let (mut client, mut server) = pair();
    let [id, other] = [0; 2].map(|_| client.open().unwrap().unwrap());
    client.write(id, &mut Bytes::from(vec![7; 5000])).unwrap();
    client.write(other, &mut Bytes::from(vec![7; 5000])).unwrap();
    exchange(&mut client, &mut server).unwrap();
    let mut taken = Vec::new();
    assert_eq!(server.read(id, 1, &mut taken).unwrap(), Readable::Some);
    let length: usize = taken.iter().map(|(_, bytes)| bytes.len()).sum();
    client.reset(id, 2);
    exchange(&mut client, &mut server).unwrap();
    assert_eq!(server.unread(), 5000 + length as u64);
    server.consume(id, length as u64);
    server.consume(id, length as u64);
    assert_eq!(server.unread(), 5000);
}

#[test]
fn the_stream_limit_grows_when_streams_end_at_both_ends() {
    let (mut client, mut server) = pair();
    let open: Vec<u32> = std::iter::from_fn(|| client.open().unwrap()).collect();
    assert_eq!(open.len(), FIRST_STREAMS as usize);
    for id in &open {
        client.finish(*id);
    }
    exchange(&mut client, &mut server).unwrap();
    assert_eq!(client.open().unwrap(), None);
    for id in open {
        assert_eq!(server.accept().unwrap(), Some(id));
        for mux in [&mut client, &mut server] {
            mux.drop_sending(id);
            mux.drop_receiving(id);
        }
    }
    exchange(&mut client, &mut server).unwrap();
    assert!(client.open().unwrap().is_some());
}

#[test]
fn the_error_of_a_protocol_violation_names_the_violation() {
    let broken = |frames: &[Frame]| {
        let (_, mut server) = pair();
        let mut bytes = BytesMut::new();
        frames.iter().for_each(|frame| frame.encode(&mut bytes));
        server.receive(&mut bytes).unwrap_err()
    };
    let data = |id, length| Frame::Data(id, vec![0; length].into());
    let flood: Vec<_> = (0..40).map(|_| data(0, PAYLOAD_LIMIT)).collect();
    assert_eq!(broken(&flood), "it exceeded its credit");
    assert_eq!(broken(&[data(2 * FIRST_STREAMS, 1)]), "it opened too many streams");
    let unopened = "it named a stream that this end has not opened";
    assert_eq!(broken(&[data(1, 1)]), unopened);
    let after = "it sent data after the end of a stream";
    assert_eq!(broken(&[Frame::Finish(0), data(0, 1)]), after);
    assert_eq!(broken(&[Frame::Finish(0), Frame::Finish(0)]), "it ended a stream twice");
    let open = "it received the end of a stream that goes on";
    assert_eq!(broken(&[data(0, 1), Frame::Received(0)]), open);
}

#[test]
fn a_peer_that_ends_many_streams_without_reading_is_refused() {
    let (_, mut server) = pair();
    let mut end_the_next = |stream: u32| {
        let mut bytes = BytesMut::new();
        Frame::Finish(stream).encode(&mut bytes);
        server.receive(&mut bytes)?;
        assert_eq!(server.accept().unwrap(), Some(stream));
        server.reset(stream, 0);
        server.drop_sending(stream);
        server.drop_receiving(stream);
        Ok(())
    };
    let found = (0..20_000).find_map(|number| end_the_next(2 * number).err());
    assert_eq!(found, Some("it ended streams faster than it reads"));
}

#[test]
fn a_lost_connection_fails_all_calls_after_the_received_bytes_are_read() {
    let (mut client, mut server) = pair();
    let id = client.open().unwrap().unwrap();
    client.write(id, &mut Bytes::from_static(b"last words")).unwrap();
    exchange(&mut client, &mut server).unwrap();
    client.end(Lost::Here, Some("the client is shutting down"));
    exchange(&mut client, &mut server).unwrap();
    let why = Lost::ByPeer("the client is shutting down".to_owned());
    assert_eq!(server.lost(), Some(&why));
    assert_eq!(server.accept(), Ok(Some(id)));
    assert_eq!(server.accept(), Err(why.clone()));
    assert_eq!(all(&mut server, id), b"last words");
    assert_eq!(server.read(id, 1, &mut Vec::new()), Err(StreamError::Lost(why)));
    assert_eq!(client.open(), Err(Lost::Here));
}
