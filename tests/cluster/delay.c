/* SPDX-License-Identifier: MIT */
/* delay.c - a long wire: delay FROM TO MICROSECONDS passes frames between two interfaces, each that
 * much later. For kernels without tc's netem.
 *
 * Frames of a direction wait in a ring, in order, as the delay is the same for all. A frame that
 * finds no room is lost, as on any wire. The kernel's notes about checksums and segments that are
 * still to be made travel along (PACKET_VNET_HDR). Prints "ready" and runs until it is killed.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"

enum { RING = 32 << 20, FRAME = sizeof(struct virtio_net_hdr) + 14 + 4 + 65536 };

/* One direction. Bytes [tail, head) of the endless stream are in use; an entry is a note and a
 * frame, in a row: it begins anew at the ring's start where it would not fit before its end. */
struct direction {
    int from, to;
    uint64_t head, tail;
    char *ring;
};
struct note {
    int64_t due_ns;
    uint32_t bytes; /* 0: nothing follows, go on at the start */
};

static int open_interface(const char *name)
{
    const int on = 1, buffer = 16 << 20;
    struct sockaddr_ll address = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL) };
    struct packet_mreq everything = { .mr_type = PACKET_MR_PROMISC };
    const int fd = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));

    address.sll_ifindex = everything.mr_ifindex = (int)if_nametoindex(name);
    if (fd < 0 || setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof on) != 0 ||
        setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on) != 0 ||
        setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &everything, sizeof everything) !=
            0 ||
        setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof buffer) != 0 ||
        bind(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        (void)fprintf(stderr, "delay: %s: %s\n", name, strerror(errno));
        exit(1);
    }
    return fd;
}

static size_t entry_bytes(size_t frame)
{
    return (sizeof(struct note) + frame + 15) / 16 * 16;
}

static void keep(struct direction *d, const char *frame, size_t bytes, int64_t due_ns)
{
    const size_t need = entry_bytes(bytes), left = RING - d->head % RING;
    const size_t skipped = left < need + sizeof(struct note) ? left : 0;

    if (d->head - d->tail + skipped + need > RING)
        return;
    if (skipped) {
        const struct note end = { .bytes = 0 };
        memcpy(d->ring + d->head % RING, &end, sizeof end);
        d->head += skipped;
    }
    const struct note note = { due_ns, (uint32_t)bytes };
    memcpy(d->ring + d->head % RING, &note, sizeof note);
    memcpy(d->ring + d->head % RING + sizeof note, frame, bytes);
    d->head += need;
}

static void receive(struct direction *d, int64_t delay_ns)
{
    char frame[FRAME];
    ssize_t bytes;

    while ((bytes = recv(d->from, frame, sizeof frame, MSG_DONTWAIT)) > 0)
        keep(d, frame, (size_t)bytes, clock_ns() + delay_ns);
}

/* Sends what is due; returns nanoseconds until the next is, or -1. */
static int64_t send_due(struct direction *d)
{
    while (d->tail < d->head) {
        struct note note;
        memcpy(&note, d->ring + d->tail % RING, sizeof note);
        if (note.bytes == 0) {
            d->tail += RING - d->tail % RING;
            continue;
        }
        const int64_t left = note.due_ns - clock_ns();
        if (left > 0)
            return left;
        (void)send(d->to, d->ring + d->tail % RING + sizeof note, note.bytes, 0);
        d->tail += entry_bytes(note.bytes);
    }
    return -1;
}

int main(int argc, char **argv)
{
    static char rings[2][RING];

    if (argc != 4) {
        (void)fprintf(stderr, "usage: delay INTERFACE INTERFACE MICROSECONDS\n");
        return 2;
    }
    const int64_t delay_ns = strtoll(argv[3], NULL, 10) * 1000;
    const int first = open_interface(argv[1]), second = open_interface(argv[2]);
    struct direction directions[2] = { { first, second, 0, 0, rings[0] },
                                       { second, first, 0, 0, rings[1] } };

    puts("ready");
    (void)fflush(stdout);
    for (;;) {
        struct pollfd ends[2] = { { first, POLLIN, 0 }, { second, POLLIN, 0 } };
        const int64_t a = send_due(&directions[0]), b = send_due(&directions[1]);
        const int64_t next = a < 0 || (b >= 0 && b < a) ? b : a;
        const struct timespec timeout = { next / 1000000000, next % 1000000000 };
        (void)ppoll(ends, 2, next < 0 ? NULL : &timeout, NULL);
        receive(&directions[0], delay_ns);
        receive(&directions[1], delay_ns);
    }
}
