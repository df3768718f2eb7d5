/* SPDX-License-Identifier: MIT */
/* https_test.c - server and client against each other. tests/fed has openssl and curl as clients. */
#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/test.h"
#include "fed/authority.h"
#include "fed/https_client.h"
#include "fed/https_server.h"

enum { BODY_MOST = 1 << 16, REPLY_MOST = 1 << 20 };

/* A federation with the members a and b, and a server that says who asked what. */
struct world {
    char folder[2048], other[2048];
    struct fed_trust *trust;
    struct https_server *server;
    pthread_mutex_t lock;
    char refusals[8192];
    _Atomic bool answers; /* the slow request */
};

static enum status echo(void *arg, const struct https_request *request,
                        struct https_reply *reply)
{
    struct world *world = arg;

    if (strcmp(request->path, "/fail") == 0)
        return FAIL(STATUS_IO, "on purpose");
    if (strcmp(request->path, "/slow") == 0) {
        world->answers = true;
        clock_sleep_ms(200);
    }
    fed_put(&reply->body, request->who->name, strlen(request->who->name));
    fed_put(&reply->body, ":", 1);
    fed_put(&reply->body, request->body, request->length);
    return STATUS_OK;
}

static void note_refusal(void *arg, const char *address, const char *name, const char *why)
{
    struct world *world = arg;

    (void)address;
    pthread_mutex_lock(&world->lock);
    const size_t length = strlen(world->refusals);
    snprintf(world->refusals + length, sizeof world->refusals - length, "[%s] %s\n", name, why);
    pthread_mutex_unlock(&world->lock);
}

/* A refusal is told by another thread: waits for it, at most some seconds. */
static void check_refusal(struct world *world, const char *part)
{
    bool found = false;

    for (int i = 0; i < 200 && !found; i++) {
        pthread_mutex_lock(&world->lock);
        found = strstr(world->refusals, part) != NULL;
        pthread_mutex_unlock(&world->lock);
        if (!found)
            clock_sleep_ms(25);
    }
    if (!found)
        test_fail(__FILE__, __LINE__, "no '%s' in: %s", part, world->refusals);
}

static void begin(struct world *world)
{
    static const char *const hosts[] = { "127.0.0.1", NULL };
    const char *const folders[] = { world->folder, world->other };
    char path[2][4096];

    memset(world, 0, sizeof *world);
    pthread_mutex_init(&world->lock, NULL);
    snprintf(world->folder, sizeof world->folder, "%s/ours", test_folder());
    snprintf(world->other, sizeof world->other, "%s/theirs", test_folder());
    for (int i = 0; i < 2; i++) {
        const struct fed_enrolment a = { .name = "a", .role = FED_ROLE_PARTICIPANT, .days = 1 };
        const struct fed_enrolment b = { .name = "b", .role = FED_ROLE_PARTICIPANT, .days = 1 };
        CHECK_OK(fed_authority_create(folders[i], hosts, 1));
        CHECK_OK(fed_enrol(folders[i], &a));
        CHECK_OK(fed_enrol(folders[i], &b));
    }
    snprintf(path[0], sizeof path[0], "%s/coordinator/authority.pem", world->folder);
    snprintf(path[1], sizeof path[1], "%s/coordinator/revoked.pem", world->folder);
    CHECK_OK(fed_trust_create(path[0], path[1], &world->trust));
    snprintf(path[0], sizeof path[0], "%s/coordinator", world->folder);
    const struct https_server_config config = { .host = "127.0.0.1",
                                                .folder = path[0],
                                                .trust = world->trust,
                                                .body_most = BODY_MOST,
                                                .connections = 16,
                                                .request_s = 1,
                                                .bytes_per_s = 1 << 20,
                                                .arg = world,
                                                .answer = echo,
                                                .refused = note_refusal };
    CHECK_OK(https_server_start(&config, &world->server));
}

static void end(struct world *world)
{
    https_server_stop(world->server);
    fed_trust_destroy(world->trust);
    pthread_mutex_destroy(&world->lock);
}

/* Of member `name` of a federation, believing in the authority of `authority`. */
static struct https_client *client_of(struct world *world, const char *folder,
                                      const char *authority, const char *name)
{
    char url[64], cert[4096], key[4096], ca[4096];
    struct https_client *client;

    snprintf(url, sizeof url, "https://127.0.0.1:%d", https_server_port(world->server));
    snprintf(cert, sizeof cert, "%s/%s/cert.pem", folder, name);
    snprintf(key, sizeof key, "%s/%s/key.pem", folder, name);
    snprintf(ca, sizeof ca, "%s/authority.pem", authority);
    const struct https_client_config config = { .url = url,
                                                .cert = cert,
                                                .key = key,
                                                .authority = ca,
                                                .silent_s = 5,
                                                .reply_most = REPLY_MOST };
    CHECK_OK(https_client_create(&config, &client));
    return client;
}

static enum status say(struct https_client *client, const char *path, const void *body,
                       size_t length, char *out, size_t size)
{
    struct fed_buffer reply;

    fed_buffer_init(&reply, REPLY_MOST);
    const enum status status = https_client_ask(client, path, body, length, &reply);
    snprintf(out, size, "%.*s", (int)reply.length, reply.data ? (char *)reply.data : "");
    fed_buffer_release(&reply);
    return status;
}

static void test_a_request_says_who_asks(void)
{
    struct world world;
    char text[64];

    begin(&world);
    struct https_client *a = client_of(&world, world.folder, world.folder, "a");
    struct https_client *b = client_of(&world, world.folder, world.folder, "b");
    CHECK_OK(say(a, "/x", "one", 3, text, sizeof text));
    CHECK_TEXT("a:one", text);
    CHECK_OK(say(b, "/x", NULL, 0, text, sizeof text));
    CHECK_TEXT("b:", text);
    CHECK_OK(say(a, "/x", "two", 3, text, sizeof text));
    CHECK_TEXT("a:two", text);
    CHECK_STATUS(STATUS_PEER_LOST, say(a, "/fail", "x", 1, text, sizeof text));
    CHECK_OK(say(a, "/x", "three", 5, text, sizeof text));
    CHECK_TEXT("", world.refusals);

    /* Revoked while it is connected. */
    CHECK_OK(fed_revoke(world.folder, "a"));
    CHECK_STATUS(STATUS_MISMATCH, say(a, "/x", "four", 4, text, sizeof text));
    check_refusal(&world, "[a] certificate of a: has been revoked");
    CHECK_OK(say(b, "/x", "five", 4, text, sizeof text));
    https_client_destroy(a);
    https_client_destroy(b);
    end(&world);
}

/* The reset that follows an alert may overtake it: then it looks like a lost connection, and is tried again. */
static enum status say_often(struct https_client *client)
{
    enum status status = STATUS_PEER_LOST;
    char text[64];

    for (int i = 0; i < 1000 && status == STATUS_PEER_LOST; i++) {
        status = say(client, "/x", "one", 3, text, sizeof text);
        clock_sleep_ms(2);
    }
    return status;
}

static void test_certificates_of_others_are_refused(void)
{
    struct world world;

    begin(&world);
    struct https_client *stranger = client_of(&world, world.other, world.folder, "a");
    CHECK_STATUS(STATUS_MISMATCH, say_often(stranger));
    CHECK_MESSAGE("refuses this certificate");
    check_refusal(&world, "not of this federation's authority");
    https_client_destroy(stranger);

    /* And the coordinator must be the authority's, too. */
    struct https_client *a = client_of(&world, world.folder, world.other, "a");
    CHECK_STATUS(STATUS_MISMATCH, say_often(a));
    https_client_destroy(a);
    end(&world);
}

static void test_large_bodies_are_refused(void)
{
    static char body[BODY_MOST + 1], text[BODY_MOST + 8];
    struct world world;

    begin(&world);
    struct https_client *a = client_of(&world, world.folder, world.folder, "a");
    memset(body, 'x', sizeof body);
    CHECK_OK(say(a, "/x", body, BODY_MOST, text, sizeof text));
    CHECK_INT(BODY_MOST + 2, strlen(text));
    CHECK(say(a, "/x", body, BODY_MOST + 1, text, sizeof text) != STATUS_OK);
    check_refusal(&world, "[a] the body is larger");
    CHECK_OK(say(a, "/x", "one", 3, text, sizeof text));
    https_client_destroy(a);
    end(&world);
}

/* Somebody who says nothing, and somebody who does not speak TLS. */
static void test_slow_and_plain_connections_are_cut_off(void)
{
    struct world world;
    char text[64];

    begin(&world);
    const struct sockaddr_in address = { .sin_family = AF_INET,
                                         .sin_port =
                                             htons((uint16_t)https_server_port(world.server)),
                                         .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    const int slow = socket(AF_INET, SOCK_STREAM, 0), plain = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(slow, (const struct sockaddr *)&address, sizeof address) == 0);
    CHECK(connect(plain, (const struct sockaddr *)&address, sizeof address) == 0);
    CHECK(send(plain, "GET / HTTP/1.1\r\n\r\n", 18, 0) == 18);
    struct https_client *a = client_of(&world, world.folder, world.folder, "a");
    CHECK_OK(say(a, "/x", "one", 3, text, sizeof text));
    const double began = clock_seconds();
    while (recv(slow, text, sizeof text, 0) > 0)
        ;
    CHECK(clock_seconds() - began < 10);
    check_refusal(&world, "plain HTTP");
    close(slow);
    close(plain);
    https_client_destroy(a);
    end(&world);
}

static void test_nobody_there_may_be_asked_again(void)
{
    struct world world;
    char text[64];

    begin(&world);
    struct https_client *a = client_of(&world, world.folder, world.folder, "a");
    https_server_stop(world.server);
    world.server = NULL;
    CHECK_STATUS(STATUS_PEER_LOST, say(a, "/x", "one", 3, text, sizeof text));
    https_client_destroy(a);
    end(&world);
}

static void *ask_slowly(void *arg)
{
    static enum status status;
    char text[64];

    status = say(arg, "/slow", "one", 3, text, sizeof text);
    return &status;
}

static void test_who_has_asked_is_answered(void)
{
    struct world world;
    pthread_t thread;
    void *status;

    begin(&world);
    struct https_client *a = client_of(&world, world.folder, world.folder, "a");
    CHECK(pthread_create(&thread, NULL, ask_slowly, a) == 0);
    while (!world.answers)
        clock_sleep_ms(1);
    https_server_stop(world.server);
    world.server = NULL;
    CHECK(pthread_join(thread, &status) == 0);
    CHECK_OK(*(enum status *)status);
    https_client_destroy(a);
    end(&world);
}

const struct test tests[] = {
    { .name = "a request says who asks", .run = test_a_request_says_who_asks },
    { .name = "certificates of others are refused",
      .run = test_certificates_of_others_are_refused },
    { .name = "large bodies are refused", .run = test_large_bodies_are_refused },
    { .name = "slow and plain connections are cut off",
      .run = test_slow_and_plain_connections_are_cut_off },
    { .name = "nobody there may be asked again", .run = test_nobody_there_may_be_asked_again },
    { .name = "who has asked is answered", .run = test_who_has_asked_is_answered },
    { 0 },
};
