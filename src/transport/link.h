/* SPDX-License-Identifier: MIT */
/* link.h - private: what carries messages between ranks that share no memory.
 *
 * A link is one rank's end of it. It knows nothing of rings, of failure or of waiting: it
 * begins requests and says whether one is done. Behind it are threads of one process
 * (inproc.c) or MPI (link_mpi.c).
 */
#ifndef TRANSPORT_LINK_H
#define TRANSPORT_LINK_H

#include "transport/transport.h"

struct link;

enum request_kind { REQUEST_NONE, REQUEST_SEND, REQUEST_RECEIVE };

struct link_ops {
    /* peer, tag, data, bytes and kind of the request are set. */
    enum status (*start)(struct link *link, struct transport_request *request);
    /* Moves what can be moved. Once a receive is done its length is that of what came; bytes
     * beyond request->bytes are dropped. */
    enum status (*test)(struct link *link, struct transport_request *request, bool *out_done);
    void (*cancel)(struct link *link, struct transport_request *request);
    /* Tells the other nodes that the job failed because of `rank`. */
    void (*fail)(struct link *link, int rank, const char *text);
};

struct link {
    const struct link_ops *ops;
};

#endif /* TRANSPORT_LINK_H */
