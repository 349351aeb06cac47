// `tokens MODEL THREADS COUNT`: prints the likeliest tokens after token 1, and to standard error, a line
// a token, what each took: `took SECONDS BYTES-READ`, and last its own memory without files: `own BYTES`.
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "llama.h"

static long long bytes_read() {
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_inblock * 512LL;
}

static long long own_memory() {
    std::ifstream status("/proc/self/status");
    std::string name;
    long long kib = 0;
    while (status >> name) {
        if (name == "RssAnon:") status >> kib;
    }
    return kib << 10;
}

int main(int argc, char** argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: tokens MODEL THREADS COUNT\n");
        return 2;
    }
    llama_log_set([](ggml_log_level level, const char* text, void*) {
        if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
    }, nullptr);
    llama_backend_init();
    llama_model_params how = llama_model_default_params();
    how.load_mode = LLAMA_LOAD_MODE_MMAP;
    // Weights are used where they are mapped, not copied into another order.
    how.use_extra_bufts = false;
    llama_model* model = llama_model_load_from_file(argv[1], how);
    if (model == nullptr) return 1;
    const int count = atoi(argv[3]);
    llama_context_params wanted = llama_context_default_params();
    wanted.n_ctx = 256;
    wanted.n_batch = wanted.n_ubatch = 32;
    wanted.n_threads = wanted.n_threads_batch = atoi(argv[2]);
    llama_context* context = llama_init_from_model(model, wanted);
    if (context == nullptr) return 1;
    const int words = llama_vocab_n_tokens(llama_model_get_vocab(model));
    llama_token token = 1;
    for (int number = 0; number < count; number++) {
        const auto began = std::chrono::steady_clock::now();
        const long long before = bytes_read();
        if (llama_decode(context, llama_batch_get_one(&token, 1)) != 0) return 1;
        const float* likely = llama_get_logits_ith(context, -1);
        token = 0;
        for (int word = 1; word < words; word++) {
            if (likely[word] > likely[token]) token = word;
        }
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
        fprintf(stderr, "took %.6f %lld\n", took.count(), bytes_read() - before);
        printf("%d\n", token);
    }
    fprintf(stderr, "own %lld\n", own_memory());
    llama_free(context);
    llama_model_free(model);
}
