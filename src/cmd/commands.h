#pragma once

#include <string>
#include <vector>

namespace ridge {

// Commands return the exit status; Error and the signals of output.h are run_program's to handle.
int run_command(const std::vector<std::string>& arguments);
int chat_command(const std::vector<std::string>& arguments);
int tokenize_command(const std::vector<std::string>& arguments);
int template_command(const std::vector<std::string>& arguments);
int eval_command(const std::vector<std::string>& arguments);
int inspect_command(const std::vector<std::string>& arguments);
int bench_command(const std::vector<std::string>& arguments);
int bench_ops_command(const std::vector<std::string>& arguments);    // ridge bench ops
int progression_command(const std::vector<std::string>& arguments);  // ridge bench progression
int trace_command(const std::vector<std::string>& arguments);
int roofline_command(const std::vector<std::string>& arguments);
int tune_command(const std::vector<std::string>& arguments);
int verify_command(const std::vector<std::string>& arguments);
int synth_command(const std::vector<std::string>& arguments);
int devices_command(const std::vector<std::string>& arguments);
int version_command(const std::vector<std::string>& arguments);

// The whole program: `arguments` without the program's name. Exit statuses: 0, 1 failure, 2 usage,
// 130 Ctrl-C, 143 SIGTERM, 129 SIGHUP.
int run_program(const std::vector<std::string>& arguments);

}  // namespace ridge
