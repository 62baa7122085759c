/* libontempo: units with deadlines over QUIC.
 *
 * Written from bindings/c/src by `make c-header`; do not edit.
 *
 * Calls return ONTEMPO_OK, another status that is no error (above 0), or an error (below 0), of which
 * ontempo_error() has the sentence. All may be called from any thread. Handles are not pointers: NULL, one
 * that was freed, or one of another kind gives ONTEMPO_ERROR_HANDLE. The library calls nothing of the
 * program's.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0 */

#ifndef ONTEMPO_H
#define ONTEMPO_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

// The version of the binary interface. Additions do not change it: structs begin with their size, and
// options are named by text.
#define ONTEMPO_ABI 1

// The rate that an encoder may have has changed by 1 % or more.
#define ONTEMPO_EVENT_TARGET 1

// The peer has another address.
#define ONTEMPO_EVENT_PATH 2

// The connection is over.
#define ONTEMPO_EVENT_CLOSED 3

// Room for the text of an event, bytes, with its zero.
#define ONTEMPO_EVENT_TEXT 512

// Units in the order of sending, without a gap.
#define ONTEMPO_IN_ORDER 0

// Units as they arrive.
#define ONTEMPO_OUT_OF_ORDER 1

// Each unit after those that it depends on.
#define ONTEMPO_PARTIAL_ORDER 2

// Lost units are sent again until they arrive.
#define ONTEMPO_FULL 0

// Lost units are sent again until their deadline, then dropped.
#define ONTEMPO_DEADLINE 1

// Lost units are not sent again.
#define ONTEMPO_NONE 2

// Units that one may depend on, at most.
#define ONTEMPO_MAX_DEPENDENCIES 32

// Done.
#define ONTEMPO_OK 0

// Nothing happened within the time limit.
#define ONTEMPO_TIMED_OUT 1

// The flow has ended: nothing more comes.
#define ONTEMPO_ENDED 2

// An argument is NULL where it may not be, or out of range.
#define ONTEMPO_ERROR_ARGUMENT -1

// A handle is NULL, was freed, or is of another kind.
#define ONTEMPO_ERROR_HANDLE -2

// An option has no such name, or not such a value.
#define ONTEMPO_ERROR_OPTION -3

// An address cannot be resolved or bound.
#define ONTEMPO_ERROR_ADDRESS -4

// The system has no more threads, file descriptors or random numbers.
#define ONTEMPO_ERROR_SYSTEM -5

// A certificate, key or token cannot be used.
#define ONTEMPO_ERROR_IDENTITY -6

// The peer did not answer, refused, or could not be verified.
#define ONTEMPO_ERROR_NOT_CONNECTED -7

// The connection is closed or lost.
#define ONTEMPO_ERROR_CLOSED -8

// The peer takes no more flows now, or the flow's label is too long.
#define ONTEMPO_ERROR_FLOW -9

// The unit is too long, or its deadline or dependencies are wrong.
#define ONTEMPO_ERROR_UNIT -10

// A fault of the library; please report it.
#define ONTEMPO_ERROR_INTERNAL -11

// A connection to a peer; `ontempo_connect`, `ontempo_accept`.
typedef struct ontempo_connection ontempo_connection;

// Accepts connections at a UDP port; `ontempo_listen`.
typedef struct ontempo_listener ontempo_listener;

// Options of a connection or listener; `ontempo_options_new`.
typedef struct ontempo_options ontempo_options;

// A flow that the peer sends; `ontempo_accept_flow`.
typedef struct ontempo_receive_flow ontempo_receive_flow;

// A flow that this side sends; `ontempo_open_flow`.
typedef struct ontempo_send_flow ontempo_send_flow;

// A received unit, or the number of one that was dropped; `ontempo_receive`.
typedef struct ontempo_unit ontempo_unit;

// What a call returns: 0 or above is no error.
typedef int32_t ontempo_status;

// What a connection has measured. Set `size` to `sizeof (ontempo_connection_statistics)`.
typedef struct ontempo_connection_statistics {
  // Bytes of this struct, as the program knows it.
  size_t size;
  // UDP payload sent and received, bytes.
  uint64_t bytes_sent;
  // See `bytes_sent`.
  uint64_t bytes_received;
  // Packets sent, and those of them declared lost.
  uint64_t packets_sent;
  // See `packets_sent`.
  uint64_t packets_lost;
  // Smoothed round trip in microseconds; 0 before the first sample.
  uint64_t round_trip_us;
  // cwnd, bytes.
  uint64_t cwnd;
  // The rate that the congestion control sets, bit/s; 0: none.
  uint64_t pacing_bps;
  // The rate that an encoder may have, bit/s; 0 before it is known.
  uint64_t target_bps;
} ontempo_connection_statistics;

// An event. Set `size` to `sizeof (ontempo_event)`.
typedef struct ontempo_event {
  // Bytes of this struct, as the program knows it.
  size_t size;
  // `ONTEMPO_EVENT_TARGET`, `_PATH` or `_CLOSED`.
  uint32_t kind;
  // Of the event closed, whether `code` is one: 1 or 0.
  uint32_t has_code;
  // Of the event closed: the application error code of the protocol (docs/transport.md).
  uint64_t code;
  // Of the event target: bit/s.
  uint64_t target_bps;
  // Of the event path: the peer's address. Of the event closed: the reason's name, a colon, a space
  // and a sentence.
  char text[ONTEMPO_EVENT_TEXT];
} ontempo_event;

// A unit to be sent. Set all to zero, then `size` to `sizeof (ontempo_outgoing)`.
typedef struct ontempo_outgoing {
  // Bytes of this struct, as the program knows it.
  size_t size;
  // The data, which is copied; may be NULL if `length` is 0.
  const uint8_t *data;
  // Bytes of data.
  size_t length;
  // From now to the deadline in microseconds, after which the unit is dropped; 0: none. Only for
  // flows whose reliability is not `ONTEMPO_FULL`.
  uint64_t lifetime_us;
  // Larger is more important. Below 5, a unit with a deadline is dropped before anything of it is
  // sent if the path does not bear all that is queued.
  uint8_t priority;
  // 1: `continues` is a unit. 0: there is none.
  uint8_t has_continues;
  // The unit of the same flow that it continues: both are parts of one frame, which is kept or dropped
  // whole.
  uint64_t continues;
  // Units of the same flow without which it is of no use: the numbers that `ontempo_send` gave.
  const uint64_t *depends_on;
  // How many, at most `ONTEMPO_MAX_DEPENDENCIES`.
  size_t depends_on_count;
} ontempo_outgoing;

// What became of the units of a sending flow. Set `size` to `sizeof (ontempo_send_statistics)`.
typedef struct ontempo_send_statistics {
  // Bytes of this struct, as the program knows it.
  size_t size;
  // Units accepted for sending, and their bytes.
  uint64_t units;
  // See `units`.
  uint64_t bytes;
  // Units acknowledged.
  uint64_t arrived;
  // Units dropped at their deadline, as agreed with the peer.
  uint64_t dropped;
  // Of these: units dropped before, since the path did not bear their frame.
  uint64_t shed;
  // Units queued or in flight, and their bytes.
  uint64_t held_units;
  // See `held_units`.
  uint64_t held_bytes;
} ontempo_send_statistics;

// What is known of a received unit. Set `size` to `sizeof (ontempo_unit_info)`.
typedef struct ontempo_unit_info {
  // Bytes of this struct, as the program knows it.
  size_t size;
  // Its number in the flow.
  uint64_t number;
  // 1: it was dropped and will not arrive; the rest is 0.
  uint8_t is_dropped;
  // Its priority.
  uint8_t priority;
  // 1: `continues` is a unit. 0: there is none.
  uint8_t has_continues;
  // 1: `delay_us` is known. 0: the clocks have not been compared yet.
  uint8_t has_delay;
  // Units that it depends on and that will never arrive: it may be of no use.
  uint32_t missing_count;
  // The unit that it continues.
  uint64_t continues;
  // From its sending to its arrival, microseconds; the clocks' difference is estimated.
  int64_t delay_us;
  // From its sending to its deadline, microseconds; 0: it has none.
  uint64_t lifetime_us;
  // Its data; valid until the unit is freed.
  const uint8_t *data;
  // Bytes of data.
  size_t length;
  // Units that it depends on, as the sender said; valid until the unit is freed.
  const uint64_t *depends_on;
  // How many.
  size_t depends_on_count;
} ontempo_unit_info;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// `ONTEMPO_ABI` of the library that is loaded; compare it with that of the header.
uint32_t ontempo_abi(void);

// The version of the library, such as "0.1.0".
const char *ontempo_version(void);

// Connects to `address` ("host.example:4434", "[2001:db8::1]:4434") and waits for the handshake, for
// handshake-timeout at most. `options` may be NULL; but how the peer is verified has to be said.
//
// # Safety
// `address` ends with a zero byte; `connection` can be written to.
ontempo_status ontempo_connect(const char *address,
                               const struct ontempo_options *options,
                               struct ontempo_connection **connection);

// Listens at `address` ("0.0.0.0:4434"; port 0: any free one). `options` say who may connect: token, or
// anyone.
//
// # Safety
// `address` ends with a zero byte; `listener` can be written to.
ontempo_status ontempo_listen(const char *address,
                              const struct ontempo_options *options,
                              struct ontempo_listener **listener);

// Writes the address at which it listens, such as "127.0.0.1:4434", to `room` bytes at `address`.
//
// # Safety
// `room` bytes at `address` can be written to.
ontempo_status ontempo_listener_address(const struct ontempo_listener *listener,
                                        char *address,
                                        size_t room);

// Writes the fingerprint of its certificate, 64 hexadecimal digits, to `room` bytes (65) at
// `fingerprint`.
//
// # Safety
// `room` bytes at `fingerprint` can be written to.
ontempo_status ontempo_listener_fingerprint(const struct ontempo_listener *listener,
                                            char *fingerprint,
                                            size_t room);

// Waits for a connection, for `timeout_ms` at most (below 0: without a limit). Clients that are
// refused are passed over.
//
// # Safety
// `connection` can be written to.
ontempo_status ontempo_accept(struct ontempo_listener *listener,
                              int64_t timeout_ms,
                              struct ontempo_connection **connection);

// Ends a listener; its connections go on.
ontempo_status ontempo_listener_free(struct ontempo_listener *listener);

// What a connection has measured.
//
// # Safety
// `statistics` points to a struct whose `size` is set.
ontempo_status ontempo_connection_get_statistics(const struct ontempo_connection *connection,
                                                 struct ontempo_connection_statistics *statistics);

// Closes a connection with an application error code of the protocol (0: done, 6: failed, 7: complete)
// and a sentence of at most 200 bytes for the peer. Units that have not arrived may be lost.
//
// # Safety
// `sentence` ends with a zero byte.
ontempo_status ontempo_close(struct ontempo_connection *connection,
                             uint64_t code,
                             const char *sentence);

// Closes a connection, if it is open, and ends it; its flows are over.
ontempo_status ontempo_connection_free(struct ontempo_connection *connection);

// Waits for an event of the connection, for `timeout_ms` at most (below 0: without a limit); after
// the event closed: `ONTEMPO_ENDED`. One thread calls it, or several that share the events.
//
// # Safety
// `event` points to a struct whose `size` is set.
ontempo_status ontempo_next_event(struct ontempo_connection *connection,
                                  int64_t timeout_ms,
                                  struct ontempo_event *event);

// Opens a flow to the peer with an order (`ONTEMPO_IN_ORDER`, ...), a reliability (`ONTEMPO_FULL`, ...)
// and a label of at most 256 bytes.
//
// # Safety
// `label` ends with a zero byte; `flow` can be written to.
ontempo_status ontempo_open_flow(struct ontempo_connection *connection,
                                 uint32_t order,
                                 uint32_t reliability,
                                 const char *label,
                                 struct ontempo_send_flow **flow);

// Queues a unit and gives its number, from 0 on; waits while the send queue is full, for `timeout_ms` at
// most (below 0: without a limit; 0: not at all). `number` may be NULL.
//
// # Safety
// `unit` and what it points to can be read; `number` is NULL or can be written to.
ontempo_status ontempo_send(struct ontempo_send_flow *flow,
                            const struct ontempo_outgoing *unit,
                            int64_t timeout_ms,
                            uint64_t *number);

// What became of a flow's units.
//
// # Safety
// `statistics` points to a struct whose `size` is set.
ontempo_status ontempo_send_flow_get_statistics(const struct ontempo_send_flow *flow,
                                                struct ontempo_send_statistics *statistics);

// Ends the flow: the peer sees its end after the last unit. Then waits, for `timeout_ms` at most (below
// 0: without a limit), until each unit has arrived at the peer or was dropped.
ontempo_status ontempo_finish(struct ontempo_send_flow *flow,
                              int64_t timeout_ms);

// Finishes the flow, if it is not, and ends it; what is queued is still sent.
ontempo_status ontempo_send_flow_free(struct ontempo_send_flow *flow);

// Waits for a flow that the peer opens, for `timeout_ms` at most (below 0: without a limit).
//
// # Safety
// `flow` can be written to.
ontempo_status ontempo_accept_flow(struct ontempo_connection *connection,
                                   int64_t timeout_ms,
                                   struct ontempo_receive_flow **flow);

// Writes the label that the peer gave the flow to `room` bytes (257) at `label`, and its order and
// reliability, which may be NULL.
//
// # Safety
// `room` bytes at `label` can be written to; so can `order` and `reliability`, unless they are NULL.
ontempo_status ontempo_receive_flow_get(const struct ontempo_receive_flow *flow,
                                        char *label,
                                        size_t room,
                                        uint32_t *order,
                                        uint32_t *reliability);

// Waits for the next unit, or the number of one that was dropped, for `timeout_ms` at most (below 0:
// without a limit); `ONTEMPO_ENDED` after the last one.
//
// # Safety
// `unit` can be written to.
ontempo_status ontempo_receive(struct ontempo_receive_flow *flow,
                               int64_t timeout_ms,
                               struct ontempo_unit **unit);

// Ends a receiving flow; what is left of it is discarded.
ontempo_status ontempo_receive_flow_free(struct ontempo_receive_flow *flow);

// Makes a set of options; `ontempo_options_free` ends it.
//
// # Safety
// `options` is NULL or can be written to.
ontempo_status ontempo_options_new(struct ontempo_options **options);

// Sets an option; durations, sizes and rates have units, as in "300 ms" and "8 MB".
//
// | name | value |
// | --- | --- |
// | token | secret that a client presents and a listener demands, at most 256 bytes |
// | anyone | true: a listener without token admits everybody |
// | fingerprint | of the peer's certificate, 64 hexadecimal digits |
// | ca-file, name | issuers of the peer's certificate, PEM; the name in it (default: the host) |
// | insecure | true: any peer is trusted, and gets the token; for tests |
// | identity-file | the listener's certificate and key, created if it does not exist |
// | certificate-file, key-file | the listener's, in PEM |
// | congestion, congestion.PARAMETER | congestion control and its parameters; BBR for media |
// | handshake-timeout, idle-timeout | durations |
// | dscp | of the packets, such as af41 |
// | send-bytes, receive-bytes | what a flow may queue, and what is taken of each of at most 16 flows and the program has not received |
//
// # Safety
// Both texts end with a zero byte.
ontempo_status ontempo_options_set(struct ontempo_options *options,
                                   const char *name,
                                   const char *value);

// Ends a set of options; what was made with it goes on.
ontempo_status ontempo_options_free(struct ontempo_options *options);

// A sentence that says what the last error of this thread was, in lower case; empty before the
// first. Valid until the next call of this thread.
const char *ontempo_error(void);

// What is known of a received unit, its data included.
//
// # Safety
// `unit_info` points to a struct whose `size` is set.
ontempo_status ontempo_unit_get(const struct ontempo_unit *unit,
                                struct ontempo_unit_info *unit_info);

// Ends a unit; its data is gone.
ontempo_status ontempo_unit_free(struct ontempo_unit *unit);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ONTEMPO_H */
