#define _GNU_SOURCE
/* An audit library (LD_AUDIT) that allocates for each object. Its own libc maps that where it finds room:
   directly behind another library's data, the agent's among them. */
#include <link.h>
#include <stdlib.h>
#include <string.h>

#define BYTES ((size_t)8 << 20)

static char *volatile last;

unsigned la_version(unsigned version) { return version; }

unsigned la_objopen(struct link_map *map, Lmid_t namespace, uintptr_t *cookie) {
    (void)map, (void)namespace, (void)cookie;
    last = malloc(BYTES);
    if (last)
        memset(last, 1, BYTES);
    return LA_FLG_BINDTO | LA_FLG_BINDFROM;
}

uintptr_t la_symbind64(Elf64_Sym *symbol, unsigned index, uintptr_t *by, uintptr_t *in, unsigned *flags,
                       const char *name) {
    (void)index, (void)by, (void)in, (void)flags, (void)name;
    return symbol->st_value;
}
