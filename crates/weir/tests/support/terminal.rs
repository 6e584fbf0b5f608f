//! A terminal with a command, and a simulated user who reads and types.
#![allow(dead_code, unreachable_pub)]

use crate::support::{Sandbox, await_some};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus, Stdio};

pub struct Terminal {
    person: File,
    /// The command's side of the pseudoterminal, which stays open when the command has ended.
    screen: OwnedFd,
    shown: String,
}

impl Terminal {
    pub fn open() -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
        let person = openpt(flags).unwrap();
        grantpt(&person).unwrap();
        unlockpt(&person).unwrap();
        let screen = ioctl_tiocgptpeer(&person, flags).unwrap();
        Self { person: person.into(), screen, shown: String::new() }
    }

    /// Starts a command whose input and standard error are this terminal.
    pub fn start(&self, sandbox: &Sandbox, mut command: Command) -> Child {
        let end = || Stdio::from(self.screen.try_clone().unwrap());
        command.current_dir(sandbox.home()).stdin(end()).stderr(end()).stdout(Stdio::null());
        sandbox.inside(|| command.spawn().unwrap())
    }

    /// Waits for `text`; returns all that the terminal has shown until then.
    pub fn await_text(&mut self, text: &str) -> String {
        await_some(text, || {
            self.look();
            self.shown.contains(text).then_some(())
        });
        self.shown.clone()
    }

    pub fn write(&mut self, text: &str) {
        self.person.write_all(text.as_bytes()).unwrap();
    }

    /// Whether typed characters are shown.
    pub fn echoes(&self) -> bool {
        tcgetattr(&self.screen).unwrap().local_modes.contains(LocalModes::ECHO)
    }

    /// Waits until the command ends. Returns the command's status, and all that the terminal has
    /// shown.
    pub fn end(mut self, mut child: Child) -> (ExitStatus, String) {
        let status = await_some("its end", || {
            self.look();
            child.try_wait().unwrap()
        });
        self.look();
        (status, self.shown)
    }

    fn look(&mut self) {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        while poll(&mut [PollFd::new(&self.person, PollFlags::IN)], Some(&now)).unwrap() > 0 {
            let mut bytes = [0; 4096];
            let count = self.person.read(&mut bytes).unwrap();
            self.shown.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    }
}
