/* SPDX-License-Identifier: MIT */
/* https_server.c - libmicrohttpd with GnuTLS, and what these do not have: judging certificates in the handshake, and time.
 *
 * libmicrohttpd ends a connection on which nothing happens, but one byte a second is something. So each connection has a
 * moment by which its handshake and request must be whole, or its reply taken: `request_s` after it began, and later
 * the more bytes came. A thread looks at all of them a few times a second and shuts the sockets of those that are late;
 * libmicrohttpd then finds them closed.
 */
#include "fed/https_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <microhttpd.h>
#include <netdb.h>
#include <pthread.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "fed/start.h"

enum {
    THREADS = 4,
    LOOK_MS = 100, /* how often late connections are looked for */
    HEADER_BYTES = 32 << 10,
    REFUSALS_A_SECOND = 10, /* told; more are counted */
    ADDRESS_TEXT = 64,
    FINISH_MS = 2000, /* for replies that are on their way when the server ends */
    PAUSE_MS = 5,
};

static const char tls_priorities[] = "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2";

/* A connection, from accept to close. Listed while it lives. */
struct connection {
    struct https_server *server;
    struct connection *next, *previous;
    int fd;
    char address[ADDRESS_TEXT];
    gnutls_session_t session;
    struct fed_identity who;     /* valid if judged is STATUS_OK; written by its one thread */
    bool said_hello, was_judged; /* in the handshake */
    int64_t late_ns;             /* guarded by the server's lock; INT64_MAX: never */
};

/* A request, from its header to the end of its reply. */
struct request {
    struct connection *connection;
    struct fed_buffer body;
    int64_t began_ns;
};

struct https_server {
    struct https_server_config config;
    struct MHD_Daemon *daemon;
    char *certificate, *key, *authority; /* PEM */
    pthread_t watcher;
    bool has_watcher;
    pthread_mutex_t lock;
    pthread_cond_t ending;
    /* Guarded by lock: */
    bool is_ending;
    struct connection *connections;
    int requests;   /* that have begun and are not over: their replies may be on their way */
    int64_t second; /* that refusals are counted of */
    int refusals, untold;
};

/* Refusals --------------------------------------------------------------------------------- */

/* Whether this one may be told; *more: how many were not told before it. */
static bool may_tell(struct https_server *server, int *more)
{
    const int64_t second = clock_ns() / 1000000000;

    pthread_mutex_lock(&server->lock);
    if (second != server->second) {
        server->second = second;
        server->refusals = 0;
    }
    const bool may = server->refusals++ < REFUSALS_A_SECOND;
    *more = may ? server->untold : 0;
    server->untold = may ? 0 : server->untold + 1;
    pthread_mutex_unlock(&server->lock);
    return may;
}

static void tell(struct connection *connection, const char *why)
{
    struct https_server *server = connection->server;
    char text[512];
    int more;

    if (!may_tell(server, &more))
        return;
    if (more) {
        snprintf(text, sizeof text, "%s (and %d others were refused)", why, more);
        why = text;
    }
    server->config.refused(server->config.arg, connection->address, connection->who.name, why);
}

/* Connections ---------------------------------------------------------------------------------- */

static void set_late(struct connection *connection, int64_t late_ns)
{
    pthread_mutex_lock(&connection->server->lock);
    connection->late_ns = late_ns;
    pthread_mutex_unlock(&connection->server->lock);
}

/* The moment by which `bytes` must have gone over the wire since `began_ns`. */
static int64_t deadline(const struct https_server *server, int64_t began_ns, size_t bytes)
{
    const double seconds =
        server->config.request_s + (double)bytes / (double)server->config.bytes_per_s;

    return began_ns + (int64_t)(seconds * 1e9);
}

/* The peer's certificate, judged. Its thread alone writes `who`. */
static enum status judge(struct connection *connection, gnutls_datum_t *der)
{
    unsigned count = 0;
    const gnutls_datum_t *chain = gnutls_certificate_get_peers(connection->session, &count);

    if (!chain || count == 0)
        return FAIL(STATUS_MISMATCH, "no certificate");
    *der = chain[0];
    return fed_trust_check(connection->server->config.trust, chain[0].data, chain[0].size,
                           time(NULL), &connection->who);
}

/* GnuTLS calls this within a handshake, when the peer has sent its certificate. Not 0 ends it. */
static int verify_peer(gnutls_session_t session)
{
    struct connection *connection = gnutls_db_get_ptr(session);
    gnutls_datum_t der;

    connection->was_judged = true;
    if (judge(connection, &der) == STATUS_OK)
        return 0;
    tell(connection, status_message());
    (void)gnutls_alert_send(session, GNUTLS_AL_FATAL, GNUTLS_A_ACCESS_DENIED);
    return GNUTLS_E_CERTIFICATE_ERROR;
}

/* GnuTLS calls this when it has understood how the peer begins a handshake. */
static int note_hello(gnutls_session_t session, unsigned type, unsigned when, unsigned incoming,
                      const gnutls_datum_t *message)
{
    struct connection *connection = gnutls_db_get_ptr(session);

    (void)type, (void)when, (void)incoming, (void)message;
    connection->said_hello = true;
    return 0;
}

static void print_address(struct MHD_Connection *mhd, char out[ADDRESS_TEXT])
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    char host[48] = "?", port[8] = "?";

    if (info && info->client_addr) {
        const socklen_t length = info->client_addr->sa_family == AF_INET6
                                     ? sizeof(struct sockaddr_in6)
                                     : sizeof(struct sockaddr_in);
        getnameinfo(info->client_addr, length, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV);
    }
    snprintf(out, ADDRESS_TEXT, "%s:%s", host, port);
}

static void add_connection(struct https_server *server, struct MHD_Connection *mhd, void **slot)
{
    struct connection *connection;

    *slot = NULL;
    if (mem_alloc(1, sizeof *connection, &connection) != STATUS_OK)
        return; /* its handshake then has nobody to judge it: see `answer_request` */
    connection->server = server;
    connection->who.role = FED_ROLES;
    connection->fd =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    connection->session =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION)->tls_session;
    print_address(mhd, connection->address);
    gnutls_db_set_ptr(connection->session, connection);
    gnutls_certificate_server_set_request(connection->session, GNUTLS_CERT_REQUIRE);
    gnutls_session_set_verify_function(connection->session, verify_peer);
    gnutls_handshake_set_hook_function(connection->session, GNUTLS_HANDSHAKE_CLIENT_HELLO,
                                       GNUTLS_HOOK_POST, note_hello);
    *slot = connection;

    pthread_mutex_lock(&server->lock);
    connection->late_ns = deadline(server, clock_ns(), 0);
    connection->next = server->connections;
    if (connection->next)
        connection->next->previous = connection;
    server->connections = connection;
    pthread_mutex_unlock(&server->lock);
}

/* A handshake did not come as far as a certificate. */
static void tell_handshake(struct connection *connection)
{
    if (connection->late_ns == INT64_MAX) {
        tell(connection, "no handshake within the time for it");
    } else if (connection->said_hello) {
        (void)gnutls_alert_send(connection->session, GNUTLS_AL_FATAL,
                                GNUTLS_A_CERTIFICATE_REQUIRED);
        tell(connection, "no certificate, or a handshake that was broken off");
    } else {
        tell(connection, "no TLS of version 1.2 or later (plain HTTP?)");
    }
}

static void remove_connection(struct https_server *server, struct connection *connection)
{
    if (!connection)
        return;
    pthread_mutex_lock(&server->lock);
    if (connection->previous)
        connection->previous->next = connection->next;
    else
        server->connections = connection->next;
    if (connection->next)
        connection->next->previous = connection->previous;
    const bool is_ending = server->is_ending; /* then it is we who break off */
    pthread_mutex_unlock(&server->lock);
    if (!connection->was_judged && !is_ending)
        tell_handshake(connection);
    mem_free(connection);
}

/* libmicrohttpd calls this when a connection begins and ends; its socket is open both times. */
static void notice_connection(void *arg, struct MHD_Connection *mhd, void **slot,
                              enum MHD_ConnectionNotificationCode code)
{
    if (code == MHD_CONNECTION_NOTIFY_STARTED)
        add_connection(arg, mhd, slot);
    else
        remove_connection(arg, *slot);
}

/* Shuts the sockets of those that are late. Their close is libmicrohttpd's, after notice_connection. */
static void *watch(void *arg)
{
    struct https_server *server = arg;

    pthread_mutex_lock(&server->lock);
    while (!server->is_ending) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += LOOK_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        pthread_cond_timedwait(&server->ending, &server->lock, &until);
        const int64_t now = clock_ns();
        for (struct connection *c = server->connections; c; c = c->next) {
            if (now < c->late_ns)
                continue;
            c->late_ns = INT64_MAX;
            shutdown(c->fd, SHUT_RDWR);
        }
    }
    pthread_mutex_unlock(&server->lock);
    return NULL;
}

/* Requests -------------------------------------------------------------------------------------- */

static void release_body(void *body)
{
    mem_free(body);
}

static enum MHD_Result send_reply(struct MHD_Connection *mhd, struct connection *connection,
                                  struct https_reply *reply)
{
    static const char *const headers[][2] = {
        { "Cache-Control", "no-store" },
        { "X-Content-Type-Options", "nosniff" },
        { "Content-Security-Policy",
          "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
          "frame-ancestors 'none'" },
        { "Referrer-Policy", "no-referrer" },
    };
    struct MHD_Response *response = MHD_create_response_from_buffer_with_free_callback(
        reply->body.length, reply->body.data, release_body);

    if (!response) {
        fed_buffer_release(&reply->body);
        return MHD_NO;
    }
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++)
        MHD_add_response_header(response, headers[i][0], headers[i][1]);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE,
                            reply->type ? reply->type : "application/octet-stream");
    if (reply->refresh_s) {
        char seconds[16];
        snprintf(seconds, sizeof seconds, "%d", reply->refresh_s);
        MHD_add_response_header(response, "Refresh", seconds);
    }
    set_late(connection, deadline(connection->server, clock_ns(), reply->body.length));
    const enum MHD_Result result =
        MHD_queue_response(mhd, (unsigned)(reply->code ? reply->code : 200), response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result send_text(struct MHD_Connection *mhd, struct connection *connection,
                                 int code, const char *text)
{
    struct https_reply reply = { .code = code, .type = "text/plain; charset=utf-8" };

    fed_buffer_init(&reply.body, 4096);
    fed_put(&reply.body, text, strlen(text));
    fed_put(&reply.body, "\n", 1);
    return send_reply(mhd, connection, &reply);
}

static enum MHD_Result refuse(struct MHD_Connection *mhd, struct connection *connection,
                              int code, const char *why)
{
    tell(connection, why);
    return send_text(mhd, connection, code, why);
}

/* Content-Length, if the request has one. */
static size_t announced_length(struct MHD_Connection *mhd)
{
    const char *text =
        MHD_lookup_connection_value(mhd, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
    unsigned long long length = 0;

    return text && sscanf(text, "%llu", &length) == 1 ? (size_t)length : 0;
}

/* The header has come, and nothing of the body. */
static void count_requests(struct https_server *server, int more)
{
    pthread_mutex_lock(&server->lock);
    server->requests += more;
    pthread_mutex_unlock(&server->lock);
}

static enum MHD_Result begin_request(struct https_server *server, struct connection *connection,
                                     struct MHD_Connection *mhd, const char *method,
                                     void **slot)
{
    const size_t most = strcmp(method, "POST") == 0 ? server->config.body_most : 0;
    struct request *request;
    gnutls_datum_t der;

    if (judge(connection, &der) != STATUS_OK)
        return refuse(mhd, connection, 403, status_message());
    if (strcmp(method, "POST") != 0 && strcmp(method, "GET") != 0)
        return refuse(mhd, connection, 405, "no such method here");
    if (announced_length(mhd) > most)
        return refuse(mhd, connection, 413, "the body is larger than any of this federation");
    if (mem_alloc(1, sizeof *request, &request) != STATUS_OK)
        return MHD_NO;
    request->connection = connection;
    request->began_ns = clock_ns();
    fed_buffer_init(&request->body, most);
    set_late(connection, deadline(server, request->began_ns, 0));
    *slot = request;
    count_requests(server, 1);
    return MHD_YES;
}

static enum MHD_Result take_body(struct request *request, const char *data, size_t *length)
{
    struct connection *connection = request->connection;

    fed_put(&request->body, data, *length);
    *length = 0;
    if (fed_buffer_status(&request->body) != STATUS_OK) {
        tell(connection, "the body is larger than any of this federation");
        return MHD_NO;
    }
    set_late(connection, deadline(connection->server, request->began_ns, request->body.length));
    return MHD_YES;
}

static enum MHD_Result end_request(struct https_server *server, struct request *request,
                                   struct MHD_Connection *mhd, const char *method,
                                   const char *path)
{
    struct connection *connection = request->connection;
    struct https_reply reply = { 0 };
    gnutls_datum_t der;

    set_late(connection, INT64_MAX); /* it is our turn */
    if (judge(connection, &der) != STATUS_OK)
        return refuse(mhd, connection, 403, status_message());
    const struct https_request asked = { .method = method,
                                         .path = path,
                                         .who = &connection->who,
                                         .certificate = der.data,
                                         .certificate_length = der.size,
                                         .body = request->body.data,
                                         .length = request->body.length };
    fed_buffer_init(&reply.body, SIZE_MAX / 2);
    enum status status = server->config.answer(server->config.arg, &asked, &reply);
    if (status == STATUS_OK)
        status = fed_buffer_status(&reply.body);
    if (status == STATUS_OK)
        return send_reply(mhd, connection, &reply);
    log_line(LOG_WARNING, "a request of %s: %s", connection->who.name, status_message());
    fed_buffer_release(&reply.body);
    return send_text(mhd, connection, 500,
                     "the coordinator could not do this; its log says why");
}

/* libmicrohttpd calls this with the header, with each piece of the body, and at its end. */
static enum MHD_Result answer_request(void *arg, struct MHD_Connection *mhd, const char *path,
                                      const char *method, const char *version, const char *data,
                                      size_t *length, void **slot)
{
    struct https_server *server = arg;
    struct connection *connection =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    struct request *request = *slot;

    (void)version;
    if (!connection)
        return MHD_NO;
    if (!request)
        return begin_request(server, connection, mhd, method, slot);
    if (*length)
        return take_body(request, data, length);
    return end_request(server, request, mhd, method, path);
}

static void notice_end(void *arg, struct MHD_Connection *mhd, void **slot,
                       enum MHD_RequestTerminationCode code)
{
    struct request *request = *slot;

    (void)arg, (void)mhd;
    if (!request)
        return;
    struct connection *connection = request->connection;
    if (code == MHD_REQUEST_TERMINATED_TIMEOUT_REACHED ||
        code == MHD_REQUEST_TERMINATED_CLIENT_ABORT)
        log_line(LOG_INFO, "%s %s: the request broke off", connection->address,
                 connection->who.name);
    fed_buffer_release(&request->body);
    set_late(connection, deadline(connection->server, clock_ns(), 0)); /* the next one */
    count_requests(connection->server, -1);
    mem_free(request);
    *slot = NULL;
}

/* Life ------------------------------------------------------------------------------------------- */

static void note(void *arg, const char *format, va_list list)
{
    char text[512];

    (void)arg;
    vsnprintf(text, sizeof text, format, list);
    text[strcspn(text, "\n")] = '\0';
    log_line(LOG_DEBUG, "https: %s", text);
}

static enum status read_pem(const char *folder, const char *name, char **out)
{
    char *path;
    size_t length;

    TRY(file_join(folder, name, &path));
    const enum status status = file_read(path, 1 << 20, out, &length);
    mem_free(path);
    return status;
}

/* A socket to listen on: made here, so that a failure has its reason. */
static enum status listen_on(const char *host, int port, int *out)
{
    const struct addrinfo hints = { .ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM };
    const int on = 1;
    struct addrinfo *found;
    char service[8];

    snprintf(service, sizeof service, "%d", port);
    const int code = getaddrinfo(host, service, &hints, &found);
    if (code != 0)
        return FAIL(STATUS_USAGE, "%s: cannot listen there: %s", host ? host : "",
                    gai_strerror(code));
    const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool fine = fd >= 0;
    if (fine)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    fine = fine && bind(fd, found->ai_addr, found->ai_addrlen) == 0 && listen(fd, 128) == 0;
    const int reason = errno;
    freeaddrinfo(found);
    if (!fine) {
        if (fd >= 0)
            close(fd);
        return FAIL(STATUS_IO, "%s:%d: cannot listen there: %s", host ? host : "*", port,
                    strerror(reason));
    }
    *out = fd;
    return STATUS_OK;
}

static enum status start_daemon(struct https_server *server)
{
    const struct https_server_config *config = &server->config;
    int fd;

    TRY(listen_on(config->host, config->port, &fd));
    server->daemon = MHD_start_daemon(
        MHD_USE_TLS | MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_ERROR_LOG, 0, NULL, NULL,
        answer_request, server, MHD_OPTION_EXTERNAL_LOGGER, note, server,
        MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_HTTPS_MEM_CERT, server->certificate,
        MHD_OPTION_HTTPS_MEM_KEY, server->key, MHD_OPTION_HTTPS_MEM_TRUST, server->authority,
        MHD_OPTION_HTTPS_PRIORITIES, tls_priorities, MHD_OPTION_NOTIFY_CONNECTION,
        notice_connection, server, MHD_OPTION_NOTIFY_COMPLETED, notice_end, server,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)config->connections,
        MHD_OPTION_PER_IP_CONNECTION_LIMIT, (unsigned)config->connections / 2,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEADER_BYTES, MHD_OPTION_THREAD_POOL_SIZE,
        (unsigned)THREADS, MHD_OPTION_END);
    if (!server->daemon) {
        close(fd);
        return FAIL(STATUS_IO, "%s: the HTTPS server does not start with this certificate",
                    config->folder);
    }
    return STATUS_OK;
}

enum status https_server_start(const struct https_server_config *config,
                               struct https_server **out)
{
    struct https_server *server;

    TRY(fed_start());
    TRY(mem_alloc(1, sizeof *server, &server));
    server->config = *config;
    pthread_mutex_init(&server->lock, NULL);
    pthread_cond_init(&server->ending, NULL);
    enum status status = read_pem(config->folder, "cert.pem", &server->certificate);
    if (status == STATUS_OK)
        status = read_pem(config->folder, "key.pem", &server->key);
    if (status == STATUS_OK)
        status = read_pem(config->folder, "authority.pem", &server->authority);
    if (status == STATUS_OK)
        status = start_daemon(server);
    if (status == STATUS_OK) {
        server->has_watcher = pthread_create(&server->watcher, NULL, watch, server) == 0;
        if (!server->has_watcher)
            status = FAIL(STATUS_NO_MEMORY, "no thread for the HTTPS server");
    }
    if (status != STATUS_OK) {
        https_server_stop(server);
        return status;
    }
    *out = server;
    return STATUS_OK;
}

/* Who has asked is answered, unless it takes its time: a participant that is not told of the end would wait for ever. */
static void let_finish(struct https_server *server)
{
    int left = 1;

    for (int ms = 0; ms < FINISH_MS && left > 0; ms += PAUSE_MS) {
        pthread_mutex_lock(&server->lock);
        left = server->requests;
        pthread_mutex_unlock(&server->lock);
        if (left > 0)
            clock_sleep_ms(PAUSE_MS);
    }
}

void https_server_stop(struct https_server *server)
{
    if (!server)
        return;
    let_finish(server);
    pthread_mutex_lock(&server->lock);
    server->is_ending = true;
    pthread_cond_signal(&server->ending);
    pthread_mutex_unlock(&server->lock);
    if (server->has_watcher)
        pthread_join(server->watcher, NULL);
    if (server->daemon)
        MHD_stop_daemon(server->daemon);
    pthread_cond_destroy(&server->ending);
    pthread_mutex_destroy(&server->lock);
    mem_free(server->certificate);
    if (server->key)
        sodium_memzero(server->key, strlen(server->key));
    mem_free(server->key);
    mem_free(server->authority);
    mem_free(server);
}

int https_server_port(const struct https_server *server)
{
    const union MHD_DaemonInfo *info =
        MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_BIND_PORT);

    return info ? info->port : 0;
}
