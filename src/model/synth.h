#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "file/model_file.h"

namespace ridge {

// Models with random weights: the shapes, hyper-parameters and vocabulary sizes of published
// models, numbers drawn from a seed. They compute what the real ones compute, in the time that
// those take, and say nothing sensible. The result is a genuine GGUF file with a tokenizer of its
// own, which knows every byte and common English words.
//
// name: llama-3.2-1b, llama-3.2-3b, llama-3.1-8b, qwen3-0.6b, qwen3-1.7b, qwen3-4b, qwen3-8b,
// smollm2-135m, and tiny-llama3, tiny-qwen3, tiny-qwen2 (d_model 256), which have each option of
// their architecture, and tiny-open-llama, whose d_head is 24: no multiple of 16, as OpenLLaMA's
// 100.
// format: a format that GGUF has, for all matrices, or a mixture, Q4_K_M or Q5_K_M; in any case.
// Where a row is not a whole number of its blocks, a matrix takes the next format of smaller
// blocks, as llama.cpp does. Vectors are F32.
//
// The same name, format and seed give the same bytes on every machine. An unknown name or format is
// a usage Error that lists the known ones.

std::vector<std::string> synth_names();
std::vector<std::string> synth_formats();

// Called from the calling thread with the share that is done, 0..1. It may throw: the work stops,
// and nothing is left behind.
using SynthProgress = std::function<void(double share)>;

// In memory, on all cores; about the file's size is resident. ModelFile::path() is
// "synth:NAME:FORMAT".
ModelFile make_synth(const std::string& name, const std::string& format, uint64_t seed,
                     const SynthProgress& progress = {});

// The same bytes to a file, through a buffer of a few megabytes. Without `replace` an existing file
// is an Error.
void write_synth(const std::string& name, const std::string& format, uint64_t seed,
                 const std::string& path, bool replace, const SynthProgress& progress = {});

}  // namespace ridge
