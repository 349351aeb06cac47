#!/bin/sh
# A redis server is filled and all of its keys are read by SCAN and GET. $1: a directory for its socket. $2: the values, `zeroes`
# (but for a few bytes, as the server itself makes them) or `noise`.
set -eu
socket=$1/redis-$$.sock
redis-server --port 0 --unixsocket "$socket" --save '' --appendonly no --enable-debug-command local --logfile /dev/null &
server=$!
until redis-cli -s "$socket" ping >/dev/null 2>&1; do
    kill -0 $server
    sleep 0.05
done
case $2 in
zeroes) redis-cli -s "$socket" debug populate 300000 key 1000 ;;
noise)
    head -c 4194304 /dev/urandom | redis-cli -s "$socket" -x set noise
    fill='local noise = redis.call("GET", "noise")
    for index = 0, 299999 do
        local at = math.random(#noise - 1000)
        redis.call("SET", "key:" .. index, string.sub(noise, at, at + 999))
    end
    redis.call("DEL", "noise")
    return "OK"'
    redis-cli -s "$socket" eval "$fill" 0
    ;;
esac
scan='local cursor, keys, bytes = "0", 0, 0
repeat
    local page = redis.call("SCAN", cursor, "COUNT", 1000)
    cursor = page[1]
    for _, key in ipairs(page[2]) do
        keys = keys + 1
        bytes = bytes + #redis.call("GET", key)
    end
until cursor == "0"
return keys .. " keys, " .. bytes .. " bytes"'
redis-cli -s "$socket" eval "$scan" 0
redis-cli -s "$socket" shutdown nosave || true
wait $server
