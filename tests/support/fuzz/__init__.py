"""Fuzzing a broker over real sockets: valid requests, spoiled in many ways, and attacks on the framing."""
