/* SPDX-License-Identifier: MIT */
/* team_test.c - teams of devices: messages of any length and order arrive, also in captured graphs, and who gives up is not
 * kept waiting. Ranks of the CPU are threads; the one GPU that there may be is a team of one, which sends to itself.
 */
#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/test.h"
#include "kernel/device_testing.h"

enum { RANKS = 4, MESSAGES = 3, LONGEST = 40 * 1000 /* more than a ring */ };

static const struct device_place *gpu(void)
{
    static struct device_place place;

    if (!place.face && device_place_open("cuda", &place) != STATUS_OK)
        test_skip(status_message());
    if (!place.face->team)
        test_skip("this build has no NCCL");
    return &place;
}

static bool never(void *arg)
{
    (void)arg;
    return false;
}

static const struct device_patience patient = { .ends = never };
static const struct device_member alone = { 0, 1, 0 }, first_of_two = { 0, 2, 0 };

/* Several ranks ------------------------------------------------------------------------------ */

struct rank {
    const struct device_place *place;
    const struct device_team_id *id;
    uint64_t seed;
    int number, count;
    enum status status;
};

/* Byte i of message m between two. */
static uint8_t byte_of(int from, int to, int m, size_t i)
{
    return (uint8_t)(from * 71 + to * 31 + m * 7 + (int)(i % 251));
}

static size_t length_of(uint64_t seed, int from, int to, int m)
{
    struct rng rng;

    rng_init(&rng, seed, (uint64_t)((from * RANKS + to) * MESSAGES + m));
    return rng_below(&rng, 4) == 0 ? 0 : (size_t)rng_below(&rng, LONGEST);
}

static uint8_t *place_of(uint8_t *data, int peer, int m)
{
    return data + (size_t)(peer * MESSAGES + m) * LONGEST;
}

/* In an order that is the rank's own; between a pair it is that of the messages. */
static enum status put_all(const struct rank *rank, struct device_team *team, uint8_t *out,
                           uint8_t *in)
{
    const struct device_team_ops *ops = rank->place->face->team;

    for (int k = 0; k < rank->count; k++) {
        const int peer = (rank->number + k) % rank->count;
        for (int m = 0; m < MESSAGES; m++) {
            const size_t there = length_of(rank->seed, rank->number, peer, m);
            const size_t here = length_of(rank->seed, peer, rank->number, m);
            if (there)
                TRY(ops->send(team, place_of(out, peer, m), there, peer));
            if (here)
                TRY(ops->receive(team, place_of(in, peer, m), here, peer));
        }
    }
    return STATUS_OK;
}

static enum status check_all(const struct rank *rank, uint8_t *in)
{
    for (int peer = 0; peer < rank->count; peer++) {
        for (int m = 0; m < MESSAGES; m++) {
            const size_t length = length_of(rank->seed, peer, rank->number, m);
            for (size_t i = 0; i < length; i++) {
                if (place_of(in, peer, m)[i] != byte_of(peer, rank->number, m, i))
                    return FAIL(STATUS_MISMATCH, "byte %zu of %d from %d to %d", i, m, peer,
                                rank->number);
            }
        }
    }
    return STATUS_OK;
}

static enum status exchange(const struct rank *rank, struct device_team *team, uint8_t *out,
                            uint8_t *in)
{
    const struct device_team_ops *ops = rank->place->face->team;

    for (int peer = 0; peer < rank->count; peer++) {
        for (int m = 0; m < MESSAGES; m++) {
            for (size_t i = 0; i < LONGEST; i++)
                place_of(out, peer, m)[i] = byte_of(rank->number, peer, m, i);
        }
    }
    for (int round = 0; round < 3; round++) {
        memset(in, 0, (size_t)RANKS * MESSAGES * LONGEST);
        TRY(ops->begin(team, rank->place->stream));
        TRY(put_all(rank, team, out, in));
        TRY(ops->end(team));
        TRY(rank->place->face->stream->wait(rank->place->stream));
        TRY(check_all(rank, in));
    }
    /* What the last has goes to all. */
    const int root = rank->count - 1;
    uint8_t *piece = rank->number == root ? place_of(out, 0, 0) : in;
    TRY(ops->begin(team, rank->place->stream));
    TRY(ops->broadcast(team, piece, LONGEST, root));
    TRY(ops->end(team));
    for (size_t i = 0; i < LONGEST; i++) {
        if (piece[i] != byte_of(root, 0, 0, i))
            return FAIL(STATUS_MISMATCH, "byte %zu that goes to all", i);
    }
    return STATUS_OK;
}

static enum status run(const struct rank *rank)
{
    const struct device_team_ops *ops = rank->place->face->team;
    const size_t bytes = (size_t)RANKS * MESSAGES * LONGEST;
    const struct device_member member = { rank->number, rank->count, 0 };
    struct device_team *team;
    uint8_t *data;

    TRY(ops->create(rank->place->device, rank->id, &member, &patient, &team));
    enum status status = mem_alloc(2, bytes, &data);
    if (status == STATUS_OK)
        status = exchange(rank, team, data, data + bytes);
    mem_free(data);
    if (status == STATUS_OK)
        status = ops->check(team);
    ops->destroy(team);
    return status;
}

static void *run_thread(void *arg)
{
    struct rank *rank = arg;

    rank->status = run(rank);
    return NULL;
}

static void messages_arrive(struct rng *rng)
{
    struct rank ranks[RANKS];
    pthread_t threads[RANKS];
    struct device_team_id id;
    struct device_place cpu;
    const int count = 1 + (int)rng_below(rng, RANKS);
    const uint64_t seed = rng_u64(rng);

    CHECK_OK(device_place_open("cpu", &cpu));
    CHECK_OK(cpu.face->team->make_id(cpu.device, count, &id));
    for (int r = 0; r < count; r++) {
        ranks[r] = (struct rank){ &cpu, &id, seed, r, count, STATUS_OK };
        CHECK_INT(0, pthread_create(&threads[r], NULL, run_thread, &ranks[r]));
    }
    for (int r = 0; r < count; r++)
        (void)pthread_join(threads[r], NULL);
    for (int r = 0; r < count; r++)
        CHECK_INT(STATUS_OK, ranks[r].status);
    device_place_close(&cpu);
}

/* Giving up ---------------------------------------------------------------------------------- */

struct waiting {
    const struct device_place *place;
    const struct device_team_id *id;
    int number;
    struct device_team *team;
    enum status status;
};

static void *join_team(void *arg)
{
    struct waiting *w = arg;
    const struct device_member member = { w->number, 2, 0 };

    w->status =
        w->place->face->team->create(w->place->device, w->id, &member, &patient, &w->team);
    return NULL;
}

static void *wait_for_nothing(void *arg)
{
    struct waiting *w = arg;
    const struct device_team_ops *ops = w->place->face->team;
    char byte;

    w->status = ops->begin(w->team, w->place->stream);
    if (w->status == STATUS_OK)
        w->status = ops->receive(w->team, &byte, 1, 1);
    const enum status ended = ops->end(w->team);
    w->status = w->status == STATUS_OK ? ended : w->status;
    return NULL;
}

static void who_gives_up_does_not_wait(void)
{
    struct waiting ranks[2];
    struct device_team_id id;
    struct device_place cpu;
    pthread_t threads[2];

    CHECK_OK(device_place_open("cpu", &cpu));
    CHECK_OK(cpu.face->team->make_id(cpu.device, 2, &id));
    for (int r = 0; r < 2; r++) {
        ranks[r] = (struct waiting){ .place = &cpu, .id = &id, .number = r };
        CHECK_INT(0, pthread_create(&threads[r], NULL, join_team, &ranks[r]));
    }
    for (int r = 0; r < 2; r++) {
        (void)pthread_join(threads[r], NULL);
        CHECK_INT(STATUS_OK, ranks[r].status);
    }
    CHECK_INT(0, pthread_create(&threads[0], NULL, wait_for_nothing, &ranks[0]));
    cpu.face->team->abort(ranks[0].team);
    (void)pthread_join(threads[0], NULL);
    CHECK_INT(STATUS_PEER_LOST, ranks[0].status);
    for (int r = 0; r < 2; r++)
        cpu.face->team->destroy(ranks[r].team);
    device_place_close(&cpu);
}

static bool at_once(void *arg)
{
    (void)arg;
    return true;
}

static void who_never_comes_is_not_waited_for(void)
{
    const struct device_patience none = { .ends = at_once };
    struct device_team_id id;
    struct device_team *team;
    struct device_place cpu;

    CHECK_OK(device_place_open("cpu", &cpu));
    CHECK_OK(cpu.face->team->make_id(cpu.device, 2, &id));
    CHECK_STATUS(STATUS_PEER_LOST,
                 cpu.face->team->create(cpu.device, &id, &first_of_two, &none, &team));
    device_place_close(&cpu);
}

/* A GPU -------------------------------------------------------------------------------------- */

/* Sends to itself, adds what came to what is there, and broadcasts; captured, if the device can, and launched again and again. */
static void check_alone(const struct device_place *place)
{
    enum { COUNT = 100 * 1000, BYTES = COUNT * 4, TIMES = 4 };
    static float host[COUNT];
    const struct device_face *face = place->face;
    struct device_graph *graph = NULL;
    struct device_team_id id;
    struct device_team *team;
    float *there;

    CHECK_OK(face->team->make_id(place->device, 1, &id));
    CHECK_OK(face->team->create(place->device, &id, &alone, &patient, &team));
    CHECK_OK(face->memory->create(place->device, 2 * (size_t)BYTES, (void **)&there));
    for (int i = 0; i < COUNT; i++)
        host[i] = (float)(i % 1000);
    CHECK_OK(face->memory->copy(place->stream, there, host, BYTES));
    CHECK_OK(face->stream->wait(place->stream));
    for (int time = 0; time < TIMES; time++) {
        if (time == 1 && face->graph)
            CHECK_OK(face->graph->begin(place->stream));
        if (time < 2 || !face->graph) {
            CHECK_OK(face->team->begin(team, place->stream));
            CHECK_OK(face->team->send(team, there, BYTES, 0));
            CHECK_OK(face->team->receive(team, there + COUNT, BYTES, 0));
            CHECK_OK(face->team->broadcast(team, there, BYTES, 0));
            CHECK_OK(face->team->end(team));
            face->add(place->stream, there, there, there + COUNT, COUNT); /* twice as much */
        }
        if (time == 1 && face->graph)
            CHECK_OK(face->graph->end(place->stream, &graph));
        if (graph)
            CHECK_OK(face->graph->launch(graph, place->stream));
    }
    CHECK_OK(face->memory->copy(place->stream, host, there, BYTES));
    CHECK_OK(face->stream->wait(place->stream));
    CHECK_OK(face->team->check(team));
    for (int i = 0; i < COUNT; i++)
        CHECK(host[i] == (float)(i % 1000) * (1 << TIMES));
    if (graph)
        face->graph->destroy(graph);
    face->team->destroy(team);
    face->memory->destroy(place->device, there);
}

static void a_team_of_one_sends_to_itself(void)
{
    struct device_place cpu;

    CHECK_OK(device_place_open("cpu", &cpu));
    check_alone(&cpu);
    device_place_close(&cpu);
}

static void a_gpu_sends_to_itself(void)
{
    check_alone(gpu());
}

/* After the abort nothing waits, and nothing is left to wait for. */
static void a_gpu_gives_up(void)
{
    const struct device_place *place = gpu();
    const struct device_team_ops *ops = place->face->team;
    struct device_team_id id;
    struct device_team *team;
    void *there;

    CHECK_OK(place->face->memory->create(place->device, 64, &there));
    CHECK_OK(ops->make_id(place->device, 1, &id));
    CHECK_OK(ops->create(place->device, &id, &alone, &patient, &team));
    ops->abort(team);
    CHECK_STATUS(STATUS_PEER_LOST, ops->check(team));
    CHECK_OK(ops->begin(team, place->stream));
    CHECK_STATUS(STATUS_PEER_LOST, ops->send(team, there, 64, 0));
    CHECK_STATUS(STATUS_PEER_LOST, ops->end(team));
    ops->destroy(team);
    place->face->memory->destroy(place->device, there);
}

static void a_gpu_does_not_wait_for_who_never_comes(void)
{
    const struct device_place *place = gpu();
    const struct device_patience none = { .ends = at_once };
    struct device_team_id id;
    struct device_team *team;

    CHECK_OK(place->face->team->make_id(place->device, 2, &id));
    const double began = clock_seconds();
    CHECK_STATUS(STATUS_PEER_LOST,
                 place->face->team->create(place->device, &id, &first_of_two, &none, &team));
    CHECK(clock_seconds() - began < 5);
}

static void the_plugin_tells_of_nccl(void)
{
    const struct device_face *face = gpu()->face;
    char text[DEVICE_TEXT];

    CHECK_OK(face->team->describe(text));
    CHECK(strncmp(text, "NCCL 2.", 7) == 0);
}

const struct test tests[] = {
    { .name = "messages arrive", .property = messages_arrive },
    { .name = "who gives up does not wait", .run = who_gives_up_does_not_wait },
    { .name = "who never comes is not waited for", .run = who_never_comes_is_not_waited_for },
    { .name = "a team of one sends to itself", .run = a_team_of_one_sends_to_itself },
    { .name = "a GPU sends to itself", .run = a_gpu_sends_to_itself },
    { .name = "a GPU gives up", .run = a_gpu_gives_up },
    { .name = "a GPU does not wait for who never comes",
      .run = a_gpu_does_not_wait_for_who_never_comes },
    { .name = "the plug-in tells of NCCL", .run = the_plugin_tells_of_nccl },
    { 0 },
};
