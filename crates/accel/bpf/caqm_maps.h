/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Maps that CAQM's programs share with each other and with `weir accel`. */
#ifndef WEIR_ACCEL_CAQM_MAPS_H
#define WEIR_ACCEL_CAQM_MAPS_H

#include "kernel.h"
#include "caqm_flow.h"

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct caqm_record);
} records SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct caqm_settings);
} network SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct caqm_place);
	__type(value, u32);
} places SEC(".maps");

/* The tags of connections whose first tagged packet arrived before the connection was
 * established. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct caqm_pending);
	__type(value, struct caqm_first);
} pending SEC(".maps");

/* Handshakes whose SYN had the client's bit. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct caqm_pending);
	__type(value, struct caqm_asked);
} asked SEC(".maps");

/* Sockets that connect with the client's bit. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct caqm_offer);
} offered SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct caqm_totals);
} totals SEC(".maps");

static __always_inline const struct caqm_settings *network_settings(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&network, &zero);
}

static __always_inline struct caqm_totals *totals_here(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&totals, &zero);
}

#endif
