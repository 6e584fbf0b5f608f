/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Describes a connection for the rules, from the context of the kernel's socket calls. */
#ifndef WEIR_ACCEL_DESCRIBE_H
#define WEIR_ACCEL_DESCRIBE_H

#include <bpf/bpf_endian.h>
#include "match.h"

/* include/linux/socket.h */
#define AF_INET 2

static __always_inline void describe(struct connection *connection, struct bpf_sock_ops *ops)
{
	u32 address[4] = {};

	connection->port = ops->local_port;
	if (ops->family == AF_INET) {
		address[2] = bpf_htonl(0xffff);
		address[3] = ops->remote_ip4;
	} else {
		/* Read the words one by one: the kernel translates each access to a word
		 * separately. */
		const volatile u32 *remote = ops->remote_ip6;

		address[0] = remote[0];
		address[1] = remote[1];
		address[2] = remote[2];
		address[3] = remote[3];
	}
	__builtin_memcpy(connection->address, address, sizeof(address));
}

#endif
