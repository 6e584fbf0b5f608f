//! Credit records: the control stream of each direction, and the limits that its records set.

use super::{Connection, Event, OVER_CREDIT};
use crate::credit::Record;
use crate::turns::RESERVE;
use bytes::Bytes;
use quinn_proto::StreamId;

/// The stream or connection whose limit a record sets. A later record with the same key replaces a
/// queued record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RecordKey {
    Connection,
    Stream(StreamId),
    Final(StreamId),
}

impl Connection {
    pub(super) fn queue_record(&mut self, record: Record) {
        let key = match record {
            Record::Stream(stream, _) => RecordKey::Stream(stream),
            Record::Connection(_) => RecordKey::Connection,
            Record::Final(stream, _) => RecordKey::Final(stream),
        };
        self.records_out.insert(key, record);
    }

    pub(super) fn raise(&mut self) {
        if let Some(limit) = self.granted.raise(self.window) {
            self.queue_record(Record::Connection(limit));
        }
    }

    pub(super) fn take_records(
        &mut self,
        arrived: &mut Vec<(u64, Bytes)>,
        end: Option<Result<(), u32>>,
    ) -> Result<(), &'static str> {
        for (offset, bytes) in arrived.drain(..) {
            self.records_in.insert(offset, bytes);
        }
        while self.records_in.ready() >= Record::LENGTH {
            let bytes = self.records_in.peek(Record::LENGTH);
            self.records_in.consume(Record::LENGTH);
            let record = bytes.try_into().ok().and_then(Record::decode);
            self.on_record(record.ok_or("malformed credit record")?)?;
        }
        if self.records_in.held() > MOST_RECORDS {
            return Err("the peer leaves too many gaps in its control stream");
        }
        match end {
            // A peer that ends the control stream before it closes the connection violates the
            // protocol.
            Some(_) if !self.inner.is_closed() => Err("the peer ended its control stream"),
            _ => Ok(()),
        }
    }

    pub(super) fn on_record(&mut self, record: Record) -> Result<(), &'static str> {
        match record {
            Record::Connection(limit) => {
                self.allowed.raise(limit);
                self.wake_writer();
            }
            Record::Stream(id, limit) => {
                // If the stream has ended, it needs no credit.
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.allowed.raise(limit);
                    self.events.push_back(Event::Writable(id));
                }
            }
            Record::Final(id, size) => {
                match self.streams.get_mut(&id) {
                    Some(stream) => stream.final_size = Some(size),
                    None if id.initiator() == self.inner.side() => {}
                    None => self.early_finals.keep(id, size, self.most_streams)?,
                }
                self.settle(id)?;
                self.forget(id);
            }
        }
        Ok(())
    }

    /// Once the peer has reported the final size of a reset or discarded stream, counts the missing
    /// bytes as consumed, because the missing bytes may never arrive.
    pub(super) fn settle(&mut self, id: StreamId) -> Result<(), &'static str> {
        if let Some(stream) = self.streams.get_mut(&id).filter(|stream| stream.is_discarded())
            && let Some(size) = stream.final_size
        {
            let missing = size.saturating_sub(stream.granted.received());
            if !stream.granted.receive(missing) || !self.granted.receive(missing) {
                return Err(OVER_CREDIT);
            }
            stream.granted.consume(missing);
            self.granted.consume(missing);
        }
        self.raise();
        Ok(())
    }

    pub(super) fn write_records(&mut self) {
        let Some(stream) = self.control_out else { return };
        if self.lost.is_some() {
            return;
        }
        while !self.record_rest.is_empty() || !self.records_out.is_empty() {
            if self.record_rest.is_empty() {
                let records = std::mem::take(&mut self.records_out);
                let bytes: Vec<u8> =
                    records.into_values().flat_map(|record| record.encode()).collect();
                self.record_rest = bytes.into();
            }
            let part = self.record_rest.clone();
            // Messages may have used up the reserve that they have beyond the send window.
            self.inner.set_send_window(self.send_window.saturating_add(2 * RESERVE));
            let written = self.inner.send_stream(stream).write_chunks(&mut [part]);
            self.inner.set_send_window(self.send_window);
            match written {
                Ok(written) => bytes::Buf::advance(&mut self.record_rest, written.bytes),
                // Many records are unacknowledged, so the remaining records wait for the next
                // acknowledgement.
                Err(_) => return,
            }
        }
    }
}

/// Maximum bytes of credit records that may wait behind a lost packet.
const MOST_RECORDS: usize = 256 * 1024;
