use link::LinkError;
use port::PortError;

/// Why an emulated link cannot start, or did not last.
#[derive(Debug, thiserror::Error)]
pub enum EmuError {
    #[error("cable {cable}: {source}")]
    Link { cable: String, source: LinkError },
    #[error("cable {cable}, side {side}: {source}")]
    Port { cable: String, side: char, source: PortError },
    #[error("there is no cable {0}")]
    NoSuchCable(usize),
    #[error("the emulator's thread cannot start: {0}")]
    Thread(std::io::Error),
    #[error("the emulator's thread ended by a fault of its own: {0}")]
    Died(String),
}
