/* Two programs in one, over libontempo:
 *
 *     units receive 127.0.0.1:4434       prints its address and fingerprint, then what arrives
 *     units send ADDRESS FINGERPRINT 100 sends 100 units, each with 500 ms to arrive
 *
 * Built with: cc units.c $(pkg-config --cflags --libs ontempo) */
#include <inttypes.h>
#include <ontempo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program where a call fails. */
static int32_t must(const char *what, int32_t status)
{
    if (status < 0) {
        fprintf(stderr, "%s: %s\n", what, ontempo_error());
        exit(1);
    }
    return status;
}

static void receive(const char *address)
{
    struct ontempo_options *options;
    struct ontempo_listener *listener;
    struct ontempo_connection *connection;
    struct ontempo_receive_flow *flow;
    struct ontempo_unit *unit;
    char at[64], fingerprint[65];
    uint64_t units = 0, bytes = 0, dropped = 0;

    must("options", ontempo_options_new(&options));
    must("token", ontempo_options_set(options, "token", "secret"));
    /* Slow programs wait for each other, as under valgrind. */
    must("timeout", ontempo_options_set(options, "handshake-timeout", "30s"));
    must("listen", ontempo_listen(address, options, &listener));
    must("address", ontempo_listener_address(listener, at, sizeof at));
    must("fingerprint", ontempo_listener_fingerprint(listener, fingerprint, sizeof fingerprint));
    printf("%s %s\n", at, fingerprint);
    fflush(stdout);
    must("accept", ontempo_accept(listener, -1, &connection));
    must("accept a flow", ontempo_accept_flow(connection, -1, &flow));
    while (must("receive", ontempo_receive(flow, -1, &unit)) == ONTEMPO_OK) {
        struct ontempo_unit_info info = { .size = sizeof info };
        must("unit", ontempo_unit_get(unit, &info));
        units += !info.is_dropped;
        dropped += info.is_dropped;
        bytes += info.length;
        must("unit", ontempo_unit_free(unit));
    }
    printf("%" PRIu64 " units, %" PRIu64 " bytes, %" PRIu64 " dropped\n", units, bytes, dropped);
    must("close", ontempo_close(connection, 7, "all received"));
    must("flow", ontempo_receive_flow_free(flow));
    /* The sender sees the end first. */
    struct ontempo_event event = { .size = sizeof event };
    while (ontempo_next_event(connection, 10000, &event) == ONTEMPO_OK)
        ;
    must("connection", ontempo_connection_free(connection));
    must("listener", ontempo_listener_free(listener));
    must("options", ontempo_options_free(options));
}

static void send_units(const char *address, const char *fingerprint, unsigned count)
{
    struct ontempo_options *options;
    struct ontempo_connection *connection;
    struct ontempo_send_flow *flow;
    static uint8_t data[5000];

    must("options", ontempo_options_new(&options));
    must("token", ontempo_options_set(options, "token", "secret"));
    /* Slow programs wait for each other, as under valgrind. */
    must("timeout", ontempo_options_set(options, "handshake-timeout", "30s"));
    must("fingerprint", ontempo_options_set(options, "fingerprint", fingerprint));
    must("connect", ontempo_connect(address, options, &connection));
    must("flow", ontempo_open_flow(connection, ONTEMPO_PARTIAL_ORDER, ONTEMPO_DEADLINE, "film", &flow));
    uint64_t key = 0;
    for (unsigned at = 0; at < count; at++) {
        struct ontempo_outgoing unit = {
            .size = sizeof unit,
            .data = data,
            .length = sizeof data,
            .lifetime_us = 500000,
            .priority = at % 10 == 0 ? 5 : 3,
            .depends_on = &key,
            .depends_on_count = at % 10 == 0 ? 0 : 1,
        };
        uint64_t number;
        memset(data, (int)at, sizeof data);
        must("send", ontempo_send(flow, &unit, -1, &number));
        if (at % 10 == 0)
            key = number;
    }
    must("finish", ontempo_finish(flow, 30000));
    struct ontempo_send_statistics sent = { .size = sizeof sent };
    must("statistics", ontempo_send_flow_get_statistics(flow, &sent));
    printf("%" PRIu64 " units, %" PRIu64 " arrived\n", sent.units, sent.arrived);
    struct ontempo_event event = { .size = sizeof event };
    while (must("event", ontempo_next_event(connection, 30000, &event)) == ONTEMPO_OK)
        if (event.kind == ONTEMPO_EVENT_CLOSED)
            printf("closed with code %" PRIu64 ": %s\n", event.code, event.text);
    must("flow", ontempo_send_flow_free(flow));
    must("connection", ontempo_connection_free(connection));
    must("options", ontempo_options_free(options));
}

int main(int argc, char **argv)
{
    if (ontempo_abi() != ONTEMPO_ABI) {
        fprintf(stderr, "libontempo has ABI %u, this program wants %u\n", ontempo_abi(), ONTEMPO_ABI);
        return 1;
    }
    if (argc == 3 && strcmp(argv[1], "receive") == 0)
        receive(argv[2]);
    else if (argc == 5 && strcmp(argv[1], "send") == 0)
        send_units(argv[2], argv[3], (unsigned)atoi(argv[4]));
    else {
        fprintf(stderr, "usage: units receive ADDRESS | units send ADDRESS FINGERPRINT COUNT\n");
        return 2;
    }
    return 0;
}
