/* A slow disk, which all threads of a process share: while there is a file SLOW_IF, each piece of
 * 64 KiB that is written to a file whose path contains SLOW_BELOW takes 60 ms, one after another,
 * in the order in which they come. */
#include "faults.h"

#define PIECE (64 << 10)

static unsigned tickets, served;

static int is_slow(int file) {
    const char *below = getenv("SLOW_BELOW"), *condition = getenv("SLOW_IF");
    char path[4096];
    if (!below || !condition || access(condition, F_OK) != 0) return 0;
    return path_of(file, path, sizeof path) && strstr(path, below) != NULL;
}

ssize_t write(int file, const void *bytes, size_t count) {
    REAL(write);
    if (!is_slow(file)) return real(file, bytes, count);
    unsigned ticket = __sync_fetch_and_add(&tickets, 1);
    while (__sync_fetch_and_add(&served, 0) != ticket) wait_millis(1);
    wait_millis(60);
    __sync_fetch_and_add(&served, 1);
    return real(file, bytes, count < PIECE ? count : PIECE);
}
