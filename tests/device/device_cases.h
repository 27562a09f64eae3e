#pragma once

#include "base/thread_pool.h"
#include "cuda/case_device.h"
#include "model/tables.h"
#include "ref/ref.h"

namespace ridge {

// What runs a case on a GPU, and what runs the reference beside it.
struct DeviceCases {
    CudaCases cuda = make_cuda_cases({.threads = 2});
    ThreadPool pool{2};
    Tables ref_tables = [] {
        Tables tables;
        ref::add_ref_ops(tables, "ref");
        return tables;
    }();
};

}  // namespace ridge
