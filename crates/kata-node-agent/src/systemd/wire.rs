//! D-Bus's wire format, as far as the calls of this agent need it: little-endian writing, reading of both
//! byte orders' little one only, since systemd on the same machine answers in its own order.
//!
//! The reader takes any bytes without panicking; what it cannot understand is `None`.

/// The longest message that is taken (the specification allows 128 MiB).
pub const LONGEST: usize = 1 << 20;

/// Writes values with D-Bus's alignment.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// What was written.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Pads with zeros.
    pub fn align(&mut self, to: usize) {
        while !self.bytes.len().is_multiple_of(to) {
            self.bytes.push(0);
        }
    }

    /// `y`.
    pub fn byte(&mut self, value: u8) {
        self.bytes.push(value);
    }

    /// `u`.
    pub fn number(&mut self, value: u32) {
        self.align(4);
        self.bytes.extend(value.to_le_bytes());
    }

    /// `t`.
    pub fn long(&mut self, value: u64) {
        self.align(8);
        self.bytes.extend(value.to_le_bytes());
    }

    /// `b`.
    pub fn boolean(&mut self, value: bool) {
        self.number(u32::from(value));
    }

    /// `s` and `o`.
    pub fn string(&mut self, value: &str) {
        self.number(length(value.len()));
        self.bytes.extend(value.as_bytes());
        self.bytes.push(0);
    }

    /// `g`.
    pub fn signature(&mut self, value: &str) {
        self.bytes.push(u8::try_from(value.len()).unwrap_or(u8::MAX));
        self.bytes.extend(value.as_bytes());
        self.bytes.push(0);
    }

    /// `a…`, whose elements are aligned to `element`.
    pub fn array(&mut self, element: usize, write: impl FnOnce(&mut Self)) {
        self.number(0);
        let at = self.bytes.len();
        self.align(element);
        let start = self.bytes.len();
        write(self);
        let written = length(self.bytes.len() - start).to_le_bytes();
        if let Some(place) = self.bytes.get_mut(at - 4..at) {
            place.copy_from_slice(&written);
        }
    }

    /// `(sv)`.
    pub fn property(&mut self, name: &str, signature: &str, write: impl FnOnce(&mut Self)) {
        self.align(8);
        self.string(name);
        self.signature(signature);
        write(self);
    }
}

fn length(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// Reads values with D-Bus's alignment.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Reads from the start of a body or header.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(length)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    /// Whether everything was read.
    pub fn is_empty(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// Where it is.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Skips padding.
    pub fn align(&mut self, to: usize) -> Option<()> {
        let rest = self.at % to;
        if rest != 0 {
            self.take(to - rest)?;
        }
        Some(())
    }

    /// `y`.
    pub fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    /// `u`.
    pub fn number(&mut self) -> Option<u32> {
        self.align(4)?;
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    /// `s` and `o`.
    pub fn string(&mut self) -> Option<String> {
        let length = usize::try_from(self.number()?).ok()?;
        let text = std::str::from_utf8(self.take(length)?).ok()?.to_owned();
        self.take(1)?;
        Some(text)
    }

    /// `g`.
    pub fn signature(&mut self) -> Option<String> {
        let length = usize::from(self.byte()?);
        let text = std::str::from_utf8(self.take(length)?).ok()?.to_owned();
        self.take(1)?;
        Some(text)
    }

    /// `v` that holds a string.
    pub fn variant_string(&mut self) -> Option<String> {
        match self.signature()?.as_str() {
            "s" | "o" => self.string(),
            "g" => self.signature(),
            _ => None,
        }
    }

    /// `v` that holds `i`.
    pub fn variant_number(&mut self) -> Option<i32> {
        if self.signature()? != "i" {
            return None;
        }
        self.align(4)?;
        Some(i32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    /// `v` that holds `t`.
    pub fn variant_long(&mut self) -> Option<u64> {
        if self.signature()? != "t" {
            return None;
        }
        self.align(8)?;
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    /// `v` that holds `as`.
    pub fn variant_strings(&mut self) -> Option<Vec<String>> {
        (self.signature()? == "as").then_some(())?;
        self.array(4, Self::string)
    }

    /// The paths in `v` that holds `a(sb)`: systemd lists the files of an environment, and whether each may be missing.
    pub fn variant_paths(&mut self) -> Option<Vec<String>> {
        (self.signature()? == "a(sb)").then_some(())?;
        self.array(8, |reader| {
            reader.align(8)?;
            let path = reader.string()?;
            reader.number()?;
            Some(path)
        })
    }

    /// The names in `a(ssssssouso)`, as systemd lists units.
    pub fn unit_names(&mut self) -> Option<Vec<String>> {
        self.array(8, |reader| {
            reader.align(8)?;
            let name = reader.string()?;
            // Description, states, the unit followed and the object's path; a job's number, type and path.
            for _ in 0..6 {
                reader.string()?;
            }
            reader.number()?;
            reader.string()?;
            reader.string()?;
            Some(name)
        })
    }

    /// The elements of an array whose elements are aligned to so many bytes.
    fn array<T>(
        &mut self,
        alignment: usize,
        mut element: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<Vec<T>> {
        let length = usize::try_from(self.number()?).ok()?;
        self.align(alignment)?;
        let end = self.at.checked_add(length)?;
        let mut elements = Vec::new();
        while self.at < end {
            elements.push(element(self)?);
        }
        Some(elements)
    }

    /// The first part of `v` that holds `(uo)`, which is how systemd names the job of a unit: 0 if it has none.
    pub fn variant_job(&mut self) -> Option<u32> {
        if self.signature()? != "(uo)" {
            return None;
        }
        self.align(8)?;
        self.number()
    }

    /// The words of the first command of `v` with `ExecStart`, whose elements begin with `(sas…`.
    pub fn first_command(&mut self) -> Option<Vec<String>> {
        if !self.signature()?.starts_with("a(sas") {
            return None;
        }
        let length = self.number()?;
        self.align(8)?;
        if length == 0 {
            return Some(Vec::new());
        }
        let program = self.string()?;
        let length = usize::try_from(self.number()?).ok()?;
        let end = self.at.checked_add(length)?;
        let mut words = Vec::new();
        while self.at < end {
            words.push(self.string()?);
        }
        if words.is_empty() {
            words.push(program);
        } else if let Some(first) = words.first_mut() {
            // The first word is the program's argument zero, not its path.
            *first = program;
        }
        Some(words)
    }
}
