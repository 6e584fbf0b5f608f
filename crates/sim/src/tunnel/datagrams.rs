use bytes::BytesMut;

/// The payloads of a tunnel's packets while links hold the packets. A packet carries the number of
/// its payload, because links copy packets.
///
/// Links drop packets silently. To find unused payloads, the world sweeps over all packets in links
/// whenever the number of payloads has doubled since the last sweep.
#[derive(Debug)]
pub(crate) struct Datagrams {
    slots: Vec<Option<BytesMut>>,
    free: Vec<u32>,
    sweep_at: usize,
    /// Whether a payload stays after its packet has arrived, because links duplicate packets.
    stays: bool,
    needed: Vec<bool>,
}

impl Datagrams {
    /// Creates an empty store. `stays`: a link duplicates packets.
    pub(crate) fn new(stays: bool) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            sweep_at: FIRST_SWEEP,
            stays,
            needed: Vec::new(),
        }
    }

    pub(crate) fn insert(&mut self, payload: BytesMut) -> u64 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        self.slots[number as usize] = Some(payload);
        u64::from(number)
    }

    /// Returns the payload of a packet that arrived.
    pub(crate) fn take(&mut self, number: u64) -> Option<BytesMut> {
        let slot = self.slots.get_mut(number as usize)?;
        if self.stays {
            return slot.clone();
        }
        let payload = slot.take()?;
        self.free.push(number as u32);
        Some(payload)
    }

    pub(crate) fn held(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn is_sweep_due(&self) -> bool {
        self.held() >= self.sweep_at
    }

    /// Drops every payload whose number `show` does not report.
    pub(crate) fn sweep(&mut self, show: impl FnOnce(&mut dyn FnMut(u64))) {
        self.needed.clear();
        self.needed.resize(self.slots.len(), false);
        show(&mut |number| {
            if let Some(needed) = self.needed.get_mut(number as usize) {
                *needed = true;
            }
        });
        for (number, (slot, needed)) in self.slots.iter_mut().zip(&self.needed).enumerate() {
            if !needed && slot.take().is_some() {
                self.free.push(number as u32);
            }
        }
        self.sweep_at = (2 * self.held()).max(FIRST_SWEEP);
    }
}

const FIRST_SWEEP: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_payloads_of_dropped_packets_are_forgotten() {
        let mut datagrams = Datagrams::new(false);
        let numbers: Vec<u64> =
            (0..=255).map(|byte| datagrams.insert(BytesMut::from(&[byte][..]))).collect();
        let inside = &numbers[100..110];
        datagrams.sweep(|needed| inside.iter().for_each(|number| needed(*number)));
        assert_eq!(datagrams.held(), 10);
        assert_eq!(datagrams.take(numbers[104]).unwrap()[..], [104]);
        assert_eq!(datagrams.take(numbers[99]), None);
        assert_eq!(datagrams.held(), 9);
        let next = datagrams.insert(BytesMut::new());
        assert!(next < 256, "a free place is used again");
    }

    #[test]
    fn a_payload_is_kept_for_a_duplicate_of_its_packet() {
        let mut datagrams = Datagrams::new(true);
        let number = datagrams.insert(BytesMut::from(&[7][..]));
        assert_eq!(datagrams.take(number), datagrams.take(number));
        assert_eq!(datagrams.held(), 1);
        datagrams.sweep(|_| {});
        assert_eq!(datagrams.held(), 0);
    }
}
