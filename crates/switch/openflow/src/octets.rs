use flow::request::Refusal;

/// Reads big-endian numbers from the front of a slice. A read beyond the end returns the refusal
/// `short`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    short: Refusal,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8], short: Refusal) -> Self {
        Self { bytes, short }
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], Refusal> {
        let (taken, rest) = self.bytes.split_at_checked(count).ok_or(self.short)?;
        self.bytes = rest;
        Ok(taken)
    }

    pub(super) fn skip(&mut self, count: usize) -> Result<(), Refusal> {
        self.take(count).map(|_| ())
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Refusal> {
        let (taken, rest) = self.bytes.split_first_chunk::<N>().ok_or(self.short)?;
        self.bytes = rest;
        Ok(*taken)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Refusal> {
        Ok(self.array::<1>()?[0])
    }

    pub(super) fn u16(&mut self) -> Result<u16, Refusal> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub(super) fn u32(&mut self) -> Result<u32, Refusal> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, Refusal> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    /// Reads a number of at most 16 bytes.
    pub(super) fn number(&mut self, bytes: usize) -> Result<u128, Refusal> {
        let mut number = 0;
        for byte in self.take(bytes.min(16))? {
            number = number << 8 | u128::from(*byte);
        }
        Ok(number)
    }
}

/// Appends big-endian numbers.
pub(super) trait Put {
    fn put_u8(&mut self, value: u8);
    fn put_u16(&mut self, value: u16);
    fn put_u32(&mut self, value: u32);
    fn put_u64(&mut self, value: u64);
    /// Appends the low `bytes` bytes of a number.
    fn put_number(&mut self, value: u128, bytes: usize);
    fn put_zeros(&mut self, count: usize);
    /// Writes text into a field of `width` bytes. The last byte is always zero.
    fn put_text(&mut self, text: &str, width: usize);
    /// Writes zeros up to the next multiple of 8 bytes from `start`.
    fn pad_to_8(&mut self, start: usize);
    fn set_u16(&mut self, at: usize, value: u16);
}

impl Put for Vec<u8> {
    fn put_u8(&mut self, value: u8) {
        self.push(value);
    }

    fn put_u16(&mut self, value: u16) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn put_u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn put_u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn put_number(&mut self, value: u128, bytes: usize) {
        self.extend_from_slice(&value.to_be_bytes()[16 - bytes.min(16)..]);
    }

    fn put_zeros(&mut self, count: usize) {
        self.resize(self.len() + count, 0);
    }

    fn put_text(&mut self, text: &str, width: usize) {
        let mut kept = text.len().min(width.saturating_sub(1));
        while !text.is_char_boundary(kept) {
            kept -= 1;
        }
        self.extend_from_slice(&text.as_bytes()[..kept]);
        self.put_zeros(width - kept);
    }

    fn pad_to_8(&mut self, start: usize) {
        let over = (self.len() - start) % 8;
        if over != 0 {
            self.put_zeros(8 - over);
        }
    }

    fn set_u16(&mut self, at: usize, value: u16) {
        if let Some(place) = self.get_mut(at..at + 2) {
            place.copy_from_slice(&value.to_be_bytes());
        }
    }
}
