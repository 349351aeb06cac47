/* Fills 400 blocks of half a MiB by two threads, and reads them twice. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { BLOCKS = 400, BYTES = 512 << 10, WORDS = BYTES / sizeof(long) };
static long *blocks[BLOCKS];

static long word(int block, int index) { return block * 1000003L + index; }

static void *fill(void *parity) {
    for (int block = (int)(long)parity; block < BLOCKS; block += 2) {
        blocks[block] = malloc(BYTES);
        for (int index = 0; index < WORDS; index += 8) blocks[block][index] = word(block, index);
    }
    return NULL;
}

int main(void) {
    pthread_t threads[2];
    for (long parity = 0; parity < 2; parity++) pthread_create(&threads[parity], NULL, fill, (void *)parity);
    for (int parity = 0; parity < 2; parity++) pthread_join(threads[parity], NULL);
    long wrong = 0;
    for (int round = 0; round < 2; round++)
        for (int block = 0; block < BLOCKS; block++)
            for (int index = 0; index < WORDS; index += 8) wrong += blocks[block][index] != word(block, index);
    printf("%ld words are wrong\n", wrong);
    return wrong != 0;
}
