//! Determines which changes of a reloaded file take effect in a running end, and which need a
//! restart.

use super::{ClientConfig, ServerConfig, Settings};

impl ServerConfig {
    /// Returns the keys that differ from `running` and take effect only after a restart.
    pub fn waits_for_start(&self, running: &Self) -> Vec<&'static str> {
        let mut keys = self.settings.waits_for_start(&running.settings);
        if self.listen_on != running.listen_on {
            keys.insert(0, "listen-on");
        }
        if self.tcp != running.tcp {
            keys.push("tcp-listen-on");
        }
        if self.tokens != running.tokens {
            keys.push("token-parser-key");
        }
        if self.tunnels_at != running.tunnels_at {
            keys.push("httpd-listen-on");
        }
        keys
    }
}

impl ClientConfig {
    /// Returns the keys that differ from `running` and take effect only after a restart. Changed
    /// pins of servers take effect at once; a changed number or address of servers takes effect
    /// after a restart.
    pub fn waits_for_start(&self, running: &Self) -> Vec<&'static str> {
        let mut keys = self.settings.waits_for_start(&running.settings);
        let servers = |config: &Self| -> Vec<(String, String, Option<u16>)> {
            let server = |far: &super::FarServer| {
                (far.endpoint.to_string(), far.trust.server_name().to_owned(), far.tcp_port)
            };
            config.servers.iter().map(server).collect()
        };
        if servers(self) != servers(running) {
            keys.insert(0, "server");
        }
        if self.connections != running.connections {
            keys.push("connections");
        }
        if self.carrier != running.carrier {
            keys.push("carrier");
        }
        if self.tunnels_at != running.tunnels_at {
            keys.push("httpd-listen-on");
        }
        keys
    }
}

impl Settings {
    fn waits_for_start(&self, running: &Self) -> Vec<&'static str> {
        let Self {
            congestion,
            memory,
            keepalive,
            dial_timeout,
            endpoints,
            metrics_on,
            status_socket,
            unconfined,
        } = self;
        let others = [
            ("congestion", *congestion != running.congestion),
            ("memory", *memory != running.memory),
            ("keepalive", *keepalive != running.keepalive),
            ("dial-timeout", *dial_timeout != running.dial_timeout),
            ("endpoints", *endpoints != running.endpoints),
            ("metrics-on", *metrics_on != running.metrics_on),
            ("status-socket", *status_socket != running.status_socket),
            ("unconfined", *unconfined != running.unconfined),
        ];
        others.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key).collect()
    }
}
