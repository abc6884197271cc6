/* A file system on which a link replaces what has its name. */
#include "faults.h"

int linkat(int from_directory, const char *from, int to_directory, const char *to, int flags) {
    REAL(linkat);
    int failed = real(from_directory, from, to_directory, to, flags);
    if (!failed || errno != EEXIST) return failed;
    unlinkat(to_directory, to, 0);
    return real(from_directory, from, to_directory, to, flags);
}
